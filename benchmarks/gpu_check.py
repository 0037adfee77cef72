"""Is the fast path right? `python -m benchmarks.gpu_check --device cuda --dtype bfloat16 --rows test.jsonl.xz`.

On the embedded checkpoint, on the same one upcycled to 8 experts, or on any directory (`--models`):

  reference  slot logits against the plain float32 engine: their relative error, and whether the likeliest answer is the
             same wherever the reference's first two answers are more than 0.1 nats apart
  packing    the same requests alone and among 30 others in random order: the largest change of a probability
  soak       random requests of 1 to 8,000 tokens, many at a time: finite, complete, none lost
  drift      with other weights (`--drift float8,int4`): how far probabilities move, and how many answers change

The reference runs on the CPU, or with `--reference-device cuda` on the GPU, in float32 without TF32 and without the
fused kernels; a few requests are then asked on the CPU too, to check the reference itself. Without `--rows` the
questions recorded in fixtures/jev are asked. `upcycled` has random routers; `python -m openjev_training upcycle` makes
a directory where they are trained.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openjev_server.bundle import load_bundle, resolve_model
from openjev_server.canvas.compile import Compiler
from openjev_server.engine.loading import load_engine
from openjev_server.engine.protocol import EngineRequest
from openjev_server.engine.torch_engine import TorchEngine
from openjev_server.wire.parse import parse_request

from benchmarks.checks import RELATIVE_ERROR, against_reference, drift, packing, soak
from benchmarks.results import DIRECTORY, machine, write_json

__all__ = ["Limits", "main"]

ROOT = Path(__file__).resolve().parents[1]
UPCYCLED = "upcycled"
ON_CPU_TOO = 16
"""Requests that a reference on the GPU is itself compared on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as right."""

    relative_error: float = RELATIVE_ERROR
    flips: int = 0
    above_margin: float = 0.5
    """Share of slots with so clear a reference: with fewer, no flip says nothing."""
    probability_change: float = 0.01


def _questions(rows: Path | None, per_task: int) -> list[tuple[Any, Mapping[str, Any]]]:
    """(state, question in wire form)."""
    if rows is not None:
        from benchmarks.accuracy import first_rows

        return [(row.state, row.question) for row in first_rows(rows, per_task)]
    found = []
    for path in sorted((ROOT / "fixtures/jev").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            asked = json.loads(line)["request"]
            if asked is not None:
                found.append((asked["state"], asked["question"]))
    return found


def _requests(directory: Path, asked: Sequence[tuple[Any, Mapping[str, Any]]], steps: int) -> list[EngineRequest]:
    bundle = load_bundle(directory)
    compiler = Compiler(bundle.tokenizer, bundle.template)
    requests = []
    for state, question in asked:
        body = {"state": state, "model": bundle.id, "questions": {"q": question}}
        parsed = parse_request(body, unknown_fields="reject")
        requests.append(compiler.compile(parsed.state, parsed.questions, steps=steps).request)
    return requests


Keep = Callable[[Mapping[str, Any]], None]


def check(name: str, directory: Path, chosen: argparse.Namespace, limits: Limits, keep: Keep) -> dict[str, Any]:
    """All parts on one checkpoint directory, and what is wrong; `keep` gets what there is after each part."""
    found: dict[str, Any] = {}
    try:
        _measure(directory, chosen, found, keep)
        missed = _missed(found, chosen, limits)
    except Exception:  # what the other checkpoints say is worth having
        found["failed"] = traceback.format_exc()
        missed = ["failed"]
        print(f"{name}: {found['failed']}", file=sys.stderr)
    found["missed"] = missed
    keep(found)
    return found


def _measure(directory: Path, chosen: argparse.Namespace, found: dict[str, Any], keep: Keep) -> None:
    rng = np.random.default_rng(0)
    asked = _questions(chosen.rows, chosen.per_task)
    asked = [asked[at] for at in rng.permutation(len(asked))]
    compared = _requests(directory, asked[: chosen.compare], steps=2)
    found |= _training(directory)
    fast = _fast(directory, chosen, chosen.weights)
    found["engine"] = _described(fast, fused=_fuses(chosen))
    fast.warm_up()
    reference = load_engine(directory, device=chosen.reference_device, dtype="float32", fused=False)
    found["reference"] = {"engine": _described(reference, fused=False), **against_reference(fast, reference, compared)}
    keep(found)
    many = list(islice(cycle(_requests(directory, asked, steps=2)), chosen.packed))
    found["packing"] = packing(fast, many, rng)
    keep(found)
    found["soak"] = soak(fast, rng, count=chosen.soak, longest=min(chosen.longest, fast.info.max_positions - 128))
    keep(found)
    for weights in filter(None, chosen.drift.split(",")):
        quantised = _fast(directory, chosen, weights)
        found.setdefault("drift", {})[weights] = drift(quantised, fast, compared)
        quantised.close()
        keep(found)
    fast.close()
    if reference.info.device != "cpu":
        anchor = load_engine(directory, device="cpu", dtype="float32")
        found["reference_on_cpu"] = against_reference(reference, anchor, compared[:ON_CPU_TOO])
        keep(found)


def _fast(directory: Path, chosen: argparse.Namespace, weights: str | None) -> TorchEngine:
    """Fused kernels wherever there can be any, also for shapes for which `serve` does not choose them."""
    kind = weights or "auto"
    return load_engine(directory, device=chosen.device, dtype=chosen.dtype, weights=kind, fused=_fuses(chosen))


def _fuses(chosen: argparse.Namespace) -> bool:
    return bool(chosen.device.startswith("cuda") and chosen.dtype == "bfloat16" and not chosen.plain)


def _described(engine: TorchEngine, *, fused: bool) -> str:
    return f"{engine.info.device} {engine.info.dtype}, {'fused kernels' if fused else 'plain PyTorch'}"


def _training(directory: Path) -> dict[str, Any]:
    """What the log of `openjev_training upcycle` says about a mixture's routers."""
    log = directory / "log.jsonl"
    if not log.is_file():
        return {}
    events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return {"training": [event for event in events if event["event"] in ("routing", "end")]}


def _missed(found: Mapping[str, Any], chosen: argparse.Namespace, limits: Limits) -> list[str]:
    checks = {
        "relative_error_max": found["reference"]["relative_error_max"] <= limits.relative_error,
        "flips_above_margin": found["reference"]["flips_above_margin"] <= limits.flips,
        "share_above_margin": found["reference"]["share_above_margin"] >= limits.above_margin,
        "probability_change_max": found["packing"]["probability_change_max"] <= limits.probability_change,
        "soak": found["soak"]["answered"] == chosen.soak,
    }
    return [name for name, held in checks.items() if not held]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="nano,upcycled", help="nano, upcycled or directories (default %(default)s)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--plain", action="store_true", help="PyTorch's own kernels: what the dtype alone changes")
    parser.add_argument("--weights", help="a quantised form: float8 or int4")
    parser.add_argument("--drift", default="", help="quantised forms to compare with the weights as they are")
    parser.add_argument("--reference-device", default="cpu", help="cpu or cuda (default %(default)s)")
    parser.add_argument("--rows", type=Path, help="typed decisions, one JSON object a line, xz")
    parser.add_argument("--per-task", type=int, default=25, help="rows of each task (default %(default)s)")
    parser.add_argument("--compare", type=int, default=500, help="requests for the reference (default %(default)s)")
    parser.add_argument("--packed", type=int, default=1000, help="requests for packing (default %(default)s)")
    parser.add_argument("--soak", type=int, default=1000, help="random requests (default %(default)s)")
    parser.add_argument("--longest", type=int, default=8000, help="tokens of the longest (default %(default)s)")
    parser.add_argument("--json", type=Path, default=DIRECTORY / "gpu_check.json", help="default %(default)s")
    parser.add_argument("--add", action="store_true", help="keep what the file has about other models")
    chosen = parser.parse_args(arguments)
    torch.set_float32_matmul_precision("highest")  # no TF32 in the reference
    result: dict[str, Any] = {"machine": machine(), "models": {}}
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="openjev-upcycled-") as scratch:
        for model in chosen.models.split(","):
            name, directory = Path(model).name + ", plain" * chosen.plain, Path(scratch) / UPCYCLED
            if model == UPCYCLED:
                from openjev_training.upcycle import upcycle  # needs `training` on the path, as nothing else here does

                upcycle(directory)
            else:
                directory = resolve_model(model)

            def keep(found: Mapping[str, Any], name: str = name) -> None:
                if chosen.add and chosen.json.is_file():  # another check may write there meanwhile
                    result["models"] = json.loads(chosen.json.read_text(encoding="utf-8"))["models"]
                result["models"][name] = found
                write_json(chosen.json, result)

            results.append(check(name, directory, chosen, Limits(), keep))
            print(f"{name}: {json.dumps(results[-1], indent=1)}", flush=True)
    return 1 if any(found["missed"] for found in results) else 0


if __name__ == "__main__":
    sys.exit(main())
