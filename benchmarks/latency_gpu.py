"""Latency of small requests on a GPU: `python -m benchmarks.latency_gpu`.

A state of 500 tokens that no earlier request had, 1, 3 or 10 yes/no questions of 40 tokens, 1 or 2 denoising steps;
one client, one connection, one request at a time. `benchmarks/latency.py` is the same for the embedded checkpoint.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.load import Connection
from benchmarks.server import RunningServer
from benchmarks.service import Sizes, command, timed
from benchmarks.text import Text

__all__ = ["fresh", "measure"]

STATE_TOKENS = 500


def fresh(text: Text, *, state: int, questions: int, suffix: int = 40) -> Iterator[bytes]:
    """Bodies with a new state and new questions each."""
    while True:
        yield text.body(state=state, questions=questions, suffix=suffix)


def measure(server: RunningServer, sizes: Sizes) -> dict[str, Any]:
    rows = []
    text = Text(seed=500)
    for steps in (1, 2):
        connection = Connection(server.url, OpenJev_Steps=str(steps))
        for questions in (1, 3, 10):
            bodies = fresh(text, state=sizes.tokens(STATE_TOKENS), questions=questions)
            measured = timed(connection, bodies, sizes.repeats(100), warm_up=sizes.repeats(10))
            floor = sizes.floor_ms(state=sizes.tokens(STATE_TOKENS), questions=questions, steps=steps)
            rows.append({"questions": questions, "steps": steps, **measured, "floor_ms": floor})
        connection.close()
    return {"state_tokens": sizes.tokens(STATE_TOKENS), "rows": rows}


def main(arguments: Sequence[str] | None = None) -> int:
    return command("latency_gpu", __doc__, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
