"""Milliseconds of one pass by its rows, and where they go: random weights of the released architecture.

    python -m benchmarks.passes --json OUT [--layers N] [--weights float8|int4]

Rows: one request of a 500-token state (or as long as the rows need) with questions of 40 + 24 tokens. `eager` launches
every kernel, `graph` replays what the warm-up captured; the floor is the larger of 6.1 GFLOP a row at 790 TFLOP/s and
the weights' bytes at 4.3 TB/s.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openjev_server.engine.protocol import CanvasBlock, EngineRequest, EngineResult
from openjev_server.engine.torch_engine import TorchEngine

from benchmarks.released import configuration, open_engine, random_tensors

SUFFIX, CANVAS = 40, 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--weights")
    parser.add_argument("--profile", action="store_true")
    arguments = parser.parse_args()
    device = torch.device("cuda:0")
    results: dict[str, Any] = {"weights": arguments.weights or "bfloat16"}

    def keep(name: str, value: Any) -> None:
        results[name] = value
        print(name, json.dumps(value), flush=True)
        arguments.json.write_text(json.dumps(results, indent=1))

    began = time.perf_counter()
    raw = configuration(layers=arguments.layers)
    named = random_tensors(raw, device=device, dtype=torch.bfloat16)
    engine = open_engine(raw, named, device="cuda:0", dtype="bfloat16", token_budget=8192, weights=arguments.weights)
    assert isinstance(engine, TorchEngine)
    keep("build_s", time.perf_counter() - began)
    keep("weights_gib", torch.cuda.memory_allocated() / 2**30)
    for rows in (100, 700, 2000):
        keep(f"eager_{rows}_ms", timed(engine, request(rows, 1)))
    began = time.perf_counter()
    engine.warm_up()
    keep("warm_up_s", time.perf_counter() - began)
    for rows in (100, 300, 700, 1200, 2000, 4000, 8000):
        for steps in (1, 2):
            keep(f"pass_{rows}_{steps}_ms", timed(engine, request(rows, steps)))
        keep(f"cached_{rows}_ms", timed(engine, request(rows, 1), cold=False))
    for questions in (1, 3, 10):
        for steps in (1, 2):
            keep(f"state500_q{questions}_s{steps}_ms", timed(engine, request(500, steps, questions)))
    for length in (8192, 16_384, 32_000):
        keep(f"state{length}_ms", timed(engine, request(length, 1, 1), repeat=3))
    keep("peak_gib", torch.cuda.max_memory_allocated() / 2**30)
    if arguments.profile:
        for rows in (700, 8000):
            keep(f"profile_{rows}", profile(lambda rows=rows: timed(engine, request(rows, 1), repeat=1)))


def request(rows: int, steps: int, questions: int | None = None) -> EngineRequest:
    """A state and questions of about so many rows; with `questions`, a state of `rows` tokens."""
    rng = np.random.default_rng(rows)
    if questions is None:
        questions = max(1, (rows - 500) // (SUFFIX + CANVAS)) if rows < 2000 else 8
        rows = max(20, rows - questions * (SUFFIX + CANVAS))
    draw: Callable[..., Any] = lambda *shape: rng.integers(3, 200_000, shape, dtype=np.int32)  # noqa: E731
    slots = np.array([8, 9], np.int32)
    candidates, offsets = np.array([5, 9, 5, 9], np.int32), np.array([0, 2, 4], np.int32)
    blocks = [CanvasBlock(draw(SUFFIX), draw(1, CANVAS), slots, candidates, offsets) for _ in range(questions)]
    return EngineRequest(draw(rows), tuple(blocks), steps)


def timed(engine: TorchEngine, asked: EngineRequest, *, cold: bool = True, repeat: int = 7) -> float:
    """Median milliseconds of the whole call, after two warm-up calls."""
    times = []
    for _ in range(repeat + 2):
        if cold:
            engine.forget_states()
        torch.cuda.synchronize()
        began = time.perf_counter()
        (result,) = engine.run([asked])
        times.append(1000 * (time.perf_counter() - began))
        assert isinstance(result, EngineResult), result
    return statistics.median(times[2:])


def profile(call: Callable[[], object]) -> list[list[Any]]:
    """Kernels by their device time: name, microseconds, calls."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        call()
    rows = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    return [[event.key[:60], round(event.self_device_time_total), event.count] for event in rows[:25]]


if __name__ == "__main__":
    main()
