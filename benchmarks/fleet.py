"""What the hop to an engine process costs: `python benchmarks/fleet.py`.

The same fake engine, which answers at once, behind the queue in this process and behind a socket in a process of its
own. One request at a time, so that the difference of the medians is the hop there and back: encoding, two sockets,
decoding, two wake-ups. Then many at a time: requests per second through one process and through two. The event loop
is the one that the server takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from openjev_server.admission import Admission
from openjev_server.dispatch import Dispatcher
from openjev_server.engine.fake import FakeEngine
from openjev_server.engine.protocol import CanvasBlock, EngineRequest
from openjev_server.fleet.process import EngineSpec
from openjev_server.fleet.supervisor import Fleet, FleetLimits

__all__ = ["Hop", "Rate", "fake", "request_of"]

RESULTS = Path(__file__).resolve().parent / "results" / "fleet.json"
BUDGET = 8_192
QUEUE = 100_000
SHAPES = {"500 tokens, 3 questions": (500, 3), "8k tokens, 100 questions": (8_192, 100), "32k tokens": (32_768, 3)}
CLIENTS = 64


@dataclass(frozen=True, slots=True)
class Hop:
    """Milliseconds per request, one after the other."""

    request: str
    here_p50: float
    here_p95: float
    process_p50: float
    process_p95: float
    added_p50: float


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests per second of 64 clients, 500 tokens and 3 questions each."""

    engines: str
    requests_per_second: float


def fake(_options: Mapping[str, Any], _progress: Callable[[str], None]) -> FakeEngine:
    """The loader of the processes, which import this file."""
    return FakeEngine()


def request_of(seed: int, tokens: int, questions: int) -> EngineRequest:
    """A state of its own; 40 tokens, 20 canvas positions and one slot with 4 candidates per question."""
    random = np.random.default_rng(seed)

    def ids(*shape: int) -> Any:
        return random.integers(1, 16_000, shape).astype(np.int32)

    slot, offsets = np.array([10], np.int32), np.array([0, 4], np.int32)
    blocks = tuple(CanvasBlock(ids(40), ids(1, 20), slot, np.sort(ids(4)), offsets) for _ in range(questions))
    return EngineRequest(ids(tokens), blocks, steps=2)


@asynccontextmanager
async def here() -> AsyncIterator[Dispatcher]:
    admission = Admission(FakeEngine(), max_queued=QUEUE, token_budget=BUDGET)
    admission.start()
    yield admission
    await admission.drain(10)


@asynccontextmanager
async def processes(count: int) -> AsyncIterator[Dispatcher]:
    specs = [EngineSpec(f"engine {number}", {}, BUDGET, "fleet:fake") for number in range(count)]
    fleet = Fleet(specs, FleetLimits(QUEUE, 64, BUDGET, 1, 1))
    fleet.start()
    try:
        await fleet.loaded()
        while not fleet.ready:
            await asyncio.sleep(0.01)
        yield fleet
    finally:
        await fleet.drain(10)


async def one_after_the_other(dispatcher: Dispatcher, requests: list[EngineRequest]) -> list[float]:
    times = []
    for request in requests:
        started = time.perf_counter()
        await dispatcher.submit(request)
        times.append(1000 * (time.perf_counter() - started))
    return times[len(times) // 10 :]


async def hop(name: str, requests: list[EngineRequest]) -> Hop:
    async with here() as inside, processes(1) as outside:
        # In turn, so that a busy moment of the machine meets both.
        times: dict[Dispatcher, list[float]] = {inside: [], outside: []}
        for start in range(0, len(requests), 50):
            for dispatcher in times:
                times[dispatcher] += await one_after_the_other(dispatcher, requests[start : start + 50])
    p50 = {dispatcher: statistics.median(taken) for dispatcher, taken in times.items()}
    p95 = {dispatcher: statistics.quantiles(taken, n=20)[18] for dispatcher, taken in times.items()}
    values = (p50[inside], p95[inside], p50[outside], p95[outside], p50[outside] - p50[inside])
    return Hop(name, *(round(value, 3) for value in values))


async def rate(name: str, dispatcher: Dispatcher, requests: list[EngineRequest]) -> Rate:
    waiting = iter(requests)

    async def client() -> None:
        for request in waiting:
            await dispatcher.submit(request)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return Rate(name, round(len(requests) / (time.perf_counter() - started)))


async def measure(count: int) -> tuple[list[Hop], list[Rate]]:
    """Both tables, from so many requests for each row."""
    hops = []
    for name, (tokens, questions) in SHAPES.items():
        hops.append(await hop(name, [request_of(seed, tokens, questions) for seed in range(count)]))
    requests = [request_of(seed, 500, 3) for seed in range(count)]
    rates = []
    async with here() as dispatcher:
        rates.append(await rate("in this process", dispatcher, requests))
    for engines in (1, 2):
        async with processes(engines) as dispatcher:
            rates.append(await rate(f"{engines} process{'es' if engines > 1 else ''}", dispatcher, requests))
    return hops, rates


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000, help="for each row (default %(default)s)")
    parser.add_argument("--machine", default=platform.machine(), help="what the result says about the hardware")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the result as JSON (default %(default)s)")
    chosen = parser.parse_args()
    with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
        loop = type(runner.get_loop()).__module__.partition(".")[0]
        hops, rates = runner.run(measure(chosen.requests))
    report = {"machine": chosen.machine, "event_loop": loop, "requests": chosen.requests}
    report |= {"hops_ms": [asdict(row) for row in hops], "rates": [asdict(row) for row in rates]}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{'request':26} {'here p50':>9} {'p95':>7} {'process p50':>12} {'p95':>7} {'added':>7}  ms")
    for row in hops:
        print(
            f"{row.request:26} {row.here_p50:9.3f} {row.here_p95:7.3f} {row.process_p50:12.3f} {row.process_p95:7.3f} "
            f"{row.added_p50:7.3f}"
        )
    for result in rates:
        print(f"{CLIENTS} clients, {result.engines}: {result.requests_per_second:.0f} requests/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
