"""Growing transcripts and repeated states: `python -m benchmarks.prefix`.

A transcript of 4,000 tokens gets 20 turns of 500 tokens, with one yes/no question after each. A turn should cost at
most 1.3 times a request whose whole state is those 500 tokens. And the same question-free state asked again: what a
cached state leaves to pay. Medians over several transcripts, one denoising step.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.latency_gpu import fresh
from benchmarks.load import Connection
from benchmarks.server import RunningServer
from benchmarks.service import Sizes, command, timed
from benchmarks.text import Text

__all__ = ["measure"]

BEGINNING = 4000
TURN = 500
TURNS = 20


def measure(server: RunningServer, sizes: Sizes) -> dict[str, Any]:
    text = Text(seed=20)
    connection = Connection(server.url, OpenJev_Steps="1")
    turn, turns = sizes.tokens(TURN), sizes.repeats(TURNS)
    new = timed(connection, fresh(text, state=turn, questions=1), sizes.repeats(40), warm_up=sizes.repeats(5))
    transcripts = [_transcript(connection, text, sizes.tokens(BEGINNING), turn, turns) for _ in range(sizes.repeats(5))]
    per_turn = [statistics.median(times[at] for times in transcripts) for at in range(1, turns + 1)]
    full = fresh(text, state=sizes.tokens(BEGINNING) + turn * turns, questions=1)
    cold = timed(connection, full, sizes.repeats(5), warm_up=1)
    state = text.state(sizes.tokens(BEGINNING))
    connection.post(text.body(state=state, questions=1)).checked()
    again = timed(connection, iter(lambda: text.body(state=state, questions=1), None), sizes.repeats(20), warm_up=2)
    connection.close()
    return {
        "beginning_tokens": sizes.tokens(BEGINNING),
        "turn_tokens": turn,
        "new_tokens_alone": new,
        "turn_ms": [round(1000 * seconds, 2) for seconds in per_turn],
        "ratio": round(1000 * statistics.mean(per_turn) / new["p50_ms"], 3),
        "whole_transcript_cold": cold,
        "repeated_state": again,
    }


def _transcript(connection: Connection, text: Text, beginning: int, turn: int, turns: int) -> list[float]:
    """Seconds of the first request and of each turn."""
    state = text.state(beginning)
    times = [connection.post(text.body(state=state, questions=1)).checked().seconds]
    for _ in range(turns):
        state += text.words(turn)
        times.append(connection.post(text.body(state=state, questions=1)).checked().seconds)
    return times


def main(arguments: Sequence[str] | None = None) -> int:
    return command("prefix", __doc__, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
