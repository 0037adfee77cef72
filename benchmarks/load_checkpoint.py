"""How long a checkpoint takes to load, and in what memory: `python -m benchmarks.load_checkpoint DIR --json OUT`.

Memory is this process's: its highest total ever (VmHWM, file pages that are mapped included), and of that the part
that is its own (RssAnon), sampled every 10 ms. `held_before` is what imports and the start of the device took.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from openjev_server.engine.hardware import memory_status
from openjev_server.engine.loading import choose_device, choose_dtype, choose_weights, load_backbone, open_checkpoint

from benchmarks.results import machine, write_json

__all__ = ["load", "main"]

INTERVAL_S = 0.01
LIMIT_BYTES = 8 << 30
"""What the host may take for 50 GB of shards."""


class AnonymousPeak:
    """The largest RssAnon that any sample saw."""

    def __init__(self) -> None:
        self.bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> AnonymousPeak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self.bytes = max(self.bytes, memory_status("RssAnon") or 0)


def load(directory: Path, *, device: str, dtype: str, weights: str, adapter: Path | None) -> dict[str, Any]:
    """Loads once; returns what it took."""
    where = choose_device(device)
    kind, _ = choose_dtype(where, dtype)
    if where.type == "cuda":
        torch.zeros(1, device=where)
        torch.cuda.reset_peak_memory_stats(where)
    before = {"rss": memory_status("VmRSS"), "anonymous": memory_status("RssAnon")}
    started = time.perf_counter()
    with AnonymousPeak() as anonymous:
        checkpoint = open_checkpoint(directory, adapter=adapter)
        opened = time.perf_counter()
        kept = choose_weights(checkpoint, where, weights)
        backbone = load_backbone(checkpoint, device=where, dtype=kind, weights=kept)
        checkpoint.close()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        finished = time.perf_counter()
    plan = checkpoint.plan
    size = sum(plan.dtypes.values())
    result = {
        "directory": directory.name,
        "machine": machine(),
        "dtype": str(kind).removeprefix("torch."),
        "weights": kept.value,
        "stored": {"format": checkpoint.stored.value, "bytes_by_dtype": dict(plan.dtypes)},
        "tensors": {"read": plan.consumed, "skipped": dict(plan.skipped)},
        "layers": len(backbone.config.layers),
        "headers_s": round(opened - started, 3),
        "load_s": round(finished - started, 3),
        "bytes_read": size,
        "gigabytes_per_s": round(size / 1e9 / (finished - started), 3),
        "host": {
            "held_before": before,
            "peak_rss": memory_status("VmHWM"),
            "peak_anonymous": anonymous.bytes,
            "limit": LIMIT_BYTES,
            "within_limit": (memory_status("VmHWM") or 0) <= LIMIT_BYTES,
        },
    }
    if where.type == "cuda":
        result["device_memory"] = {
            "allocated": torch.cuda.memory_allocated(where),
            "peak_allocated": torch.cuda.max_memory_allocated(where),
            "peak_reserved": torch.cuda.max_memory_reserved(where),
        }
    return result


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--weights", default="auto", choices=("auto", "bfloat16", "float8", "int4"))
    parser.add_argument("--adapter", type=Path)
    chosen = parser.parse_args(arguments)
    result = load(
        chosen.directory, device=chosen.device, dtype=chosen.dtype, weights=chosen.weights, adapter=chosen.adapter
    )
    write_json(chosen.json, result)
    host = result["host"]
    print(
        f"{result['bytes_read'] / 2**30:.2f} GiB in {result['load_s']} s; host at most "
        f"{host['peak_rss'] / 2**30:.2f} GiB, {host['peak_anonymous'] / 2**30:.2f} GiB of it its own",
        flush=True,
    )
    on_host = result["machine"].get("threads")  # weights on a CPU are in host memory, whatever the loader does
    return 0 if host["within_limit"] or on_host else 1


if __name__ == "__main__":
    sys.exit(main())
