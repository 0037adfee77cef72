"""What the benchmarks over HTTP share: which server they ask, and how a figure becomes a file."""

from __future__ import annotations

import argparse
import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from openjev_server.bundle import EMBEDDED_MODEL, resolve_model
from openjev_server.engine.config import BackboneConfig
from openjev_server.settings import Settings

from benchmarks.floors import floor_of, saved_curve
from benchmarks.load import Connection, percentile
from benchmarks.results import DIRECTORY, machine, write_json
from benchmarks.server import RunningServer, running_server
from benchmarks.workload import request

__all__ = ["Measure", "Sizes", "command", "memory_peak", "quantiles", "run_measures", "timed"]

Measure = Callable[[RunningServer, "Sizes"], dict[str, Any]]


class Sizes:
    """How large a benchmark is: the real one, a share of it, or one for tests.

    Args:
        tiny: a tenth of the tokens and three repeats.
        scale: or this share of the tokens.
        token_budget: tokens of one of the server's passes.
    """

    def __init__(
        self, *, tiny: bool, config: BackboneConfig | None = None, scale: float = 1.0, token_budget: int = 8192
    ) -> None:
        self.tiny = tiny
        self.token_budget = token_budget
        self._scale = 0.1 if tiny else scale
        self._config = config
        self._curve = None if config is None else saved_curve(config)

    def floor_ms(self, *, state: int, questions: int, steps: int, suffix: int = 40, width: int = 32) -> float | None:
        """The floor of one isolated request, where the model's shape is known; see `floors`."""
        if self._config is None:
            return None
        shape = {"state": state, "questions": questions, "suffix": suffix, "width": width, "steps": steps}
        one = request(np.random.default_rng(0), self._config.vocab_size, **shape)
        return round(1000 * floor_of(self._config, [one], experts=self._curve).seconds, 2)

    def tokens(self, count: int) -> int:
        """So many, scaled, and at least 60."""
        return max(60, round(count * self._scale))

    def repeats(self, count: int) -> int:
        return min(count, 3) if self.tiny else count

    def seconds(self, count: float) -> float:
        return min(count, 0.5) if self.tiny else count


def command(name: str, description: str | None, measure: Measure, arguments: Sequence[str] | None = None) -> int:
    """A benchmark as a command of its own."""
    return run_measures({name: measure}, description, arguments, default=f"{name}.json")


def run_measures(
    measures: Mapping[str, Measure], description: str | None, arguments: Sequence[str] | None, *, default: str
) -> int:
    """Starts the server that the arguments ask for, and keeps every measure's result as soon as there is one."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a checkpoint directory; default: random weights of the released shape")
    parser.add_argument("--tiny", action="store_true", help="a tiny model and small sizes, for a CPU")
    parser.add_argument(
        "--like", choices=("released", "nano"), default="released", help="whose shape random weights have"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the tokens, for a slow machine")
    parser.add_argument("--layers", type=int, help="fewer layers than the model's 30")
    parser.add_argument("--device", default="cuda")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a server setting, OPENJEV_NAME"
    )
    parser.add_argument("--json", type=Path, default=DIRECTORY / default, help="default %(default)s")
    if len(measures) > 1:
        parser.add_argument("--parts", default=",".join(measures), help="default %(default)s")
    chosen = parser.parse_args(arguments)
    names = chosen.parts.split(",") if len(measures) > 1 else list(measures)
    settings = {"OPENJEV_DEVICE": chosen.device}
    settings |= {f"OPENJEV_{name}": value for name, _, value in (entry.partition("=") for entry in chosen.set)}
    # Not above: the load clients import this module in processes of their own, and have no use for torch.
    from benchmarks.released import configuration

    raw = None if chosen.model else configuration(tiny=chosen.tiny, layers=chosen.layers)
    if raw is not None and chosen.like == "nano":
        raw = json.loads((resolve_model(EMBEDDED_MODEL) / "config.json").read_text(encoding="utf-8"))
    result: dict[str, Any] = {"machine": machine(), "model": chosen.model or f"random weights like {chosen.like}"}
    result |= {"tiny": chosen.tiny, "scale": chosen.scale, "settings": chosen.set}
    sizes = Sizes(
        tiny=chosen.tiny,
        config=None if raw is None else BackboneConfig.from_dict(raw),
        scale=chosen.scale,
        token_budget=int(settings.get("OPENJEV_TOKEN_BUDGET", Settings.model_fields["token_budget"].default)),
    )
    failed = 0
    with running_server(raw=raw, model=chosen.model, settings=settings) as server:
        result["server_ready_s"] = round(server.ready_s, 1)
        for name in names:
            try:
                result[name] = measures[name](server, sizes)
            except Exception as error:  # one part that fails must not cost the others
                result[name] = {"failed": f"{type(error).__name__}: {error}"[:2000]}
                failed = 1
            write_json(chosen.json, result)
            print(f"{name}: {result[name]}", flush=True)
    return failed


def timed(connection: Connection, bodies: Iterator[bytes], count: int, *, warm_up: int) -> dict[str, Any]:
    """One request at a time: quantiles of what the client sees, and the median time in the engine.

    Raises Refused when one is not answered.
    """
    replies = [connection.post(next(bodies)).checked() for _ in range(warm_up + count)][warm_up:]
    model = [reply.model_s for reply in replies if reply.model_s is not None]
    engine = {"engine_p50_ms": round(1000 * percentile(model, 0.5), 2)} if model else {}
    return {**quantiles([reply.seconds for reply in replies]), **engine}


def quantiles(seconds: Sequence[float]) -> dict[str, Any]:
    """p50 and p95 in milliseconds, and of how many."""
    return {
        "p50_ms": round(1000 * percentile(seconds, 0.5), 2),
        "p95_ms": round(1000 * percentile(seconds, 0.95), 2),
        "requests": len(seconds),
    }


@contextmanager
def memory_peak(server: RunningServer) -> Iterator[dict[str, float]]:
    """Fills in `gpu_peak_gib` (all of the first GPU) or, without one, the server's `rss_gib`, twice a second."""
    peak: dict[str, float] = {}
    stop = threading.Event()

    def watch() -> None:
        while True:
            name, value = _memory(server.pid)
            peak[name] = max(peak.get(name, 0.0), round(value, 2))
            if stop.wait(0.5):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def _memory(pid: int) -> tuple[str, float]:
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return "gpu_peak_gib", float(subprocess.run(query, capture_output=True, text=True, check=True).stdout) / 1024
    except (OSError, subprocess.CalledProcessError, ValueError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return "rss_gib", pages * 4096 / 2**30
