"""Whether small requests wait for large ones: `python -m benchmarks.interleave`.

Requests of 500 tokens and three questions at one step, one after the other: on an idle server, and beside a client
that sends states of 32,000 tokens without pause. Small requests run between the chunks of a large one, so that the
second p95 should be at most the first and one and a half chunks. A chunk is the token budget of a pass; its time is
that share of a large request's, idle.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.latency_gpu import fresh
from benchmarks.load import Connection, percentile
from benchmarks.server import RunningServer
from benchmarks.service import Sizes, command, quantiles, timed
from benchmarks.text import Text

__all__ = ["measure"]

LARGE = 32_000
SMALL = 500
PAUSE_S = 0.02
"""Between small requests, so that they meet a large one at every stage."""


def measure(server: RunningServer, sizes: Sizes) -> dict[str, Any]:
    text = Text(seed=32)
    small = fresh(text, state=sizes.tokens(SMALL), questions=3)
    connection = Connection(server.url, OpenJev_Steps="1")
    idle = timed(connection, small, sizes.repeats(100), warm_up=sizes.repeats(10))
    large = fresh(Text(seed=33), state=sizes.tokens(LARGE), questions=1)
    alone = timed(connection, large, sizes.repeats(5), warm_up=1)
    stop = threading.Event()
    sent: list[float] = []
    refused: list[str] = []

    def keep_busy() -> None:
        other = Connection(server.url, OpenJev_Steps="1")
        while not stop.is_set():
            reply = other.post(next(large))
            sent.append(reply.seconds)
            if reply.status != 200:
                refused.append(f"{reply.status} {reply.body[:200]!r}")
        other.close()

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        time.sleep(0.2)
        waits = []
        for _ in range(sizes.repeats(200)):
            waits.append(connection.post(next(small)).checked().seconds)
            time.sleep(PAUSE_S)
    finally:
        stop.set()
        thread.join()
        connection.close()
    chunk_ms = alone["p50_ms"] * min(1.0, sizes.token_budget / sizes.tokens(LARGE))
    busy = quantiles(waits)
    return {
        "idle": idle,
        "busy": busy,
        "large_alone": alone,
        "large_beside": {"p50_ms": round(1000 * percentile(sent, 0.5), 2), "requests": len(sent)},
        "large_failed": refused,
        "chunk_tokens": sizes.token_budget,
        "chunk_ms": round(chunk_ms, 2),
        "chunks_waited_at_p95": round((busy["p95_ms"] - idle["p95_ms"]) / chunk_ms, 2),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    return command("interleave", __doc__, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
