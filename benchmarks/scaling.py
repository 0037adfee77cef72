"""How cost grows with questions and with the state: `python -m benchmarks.scaling`.

1 to 400 yes/no questions of 56 tokens about one state of 2,000 tokens, and one question about states of 500 to 32,000
tokens, each at one denoising step over HTTP; the median of several requests, each with a new state.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.latency_gpu import fresh
from benchmarks.load import Connection
from benchmarks.server import RunningServer
from benchmarks.service import Sizes, command, timed
from benchmarks.text import Text

__all__ = ["measure"]

QUESTION_TOKENS = 56
STATE_TOKENS = 2000
QUESTIONS = (1, 10, 50, 100, 200, 300, 400)
STATES = (500, 1000, 2000, 4000, 8000, 16_000, 32_000)


def measure(server: RunningServer, sizes: Sizes) -> dict[str, Any]:
    text = Text(seed=400)
    connection = Connection(server.url, OpenJev_Steps="1")
    asked = []
    for questions in (1, 5, 20) if sizes.tiny else QUESTIONS:
        bodies = fresh(text, state=sizes.tokens(STATE_TOKENS), questions=questions, suffix=QUESTION_TOKENS)
        measured = timed(connection, bodies, sizes.repeats(7), warm_up=2)
        floor = sizes.floor_ms(state=sizes.tokens(STATE_TOKENS), questions=questions, steps=1, suffix=QUESTION_TOKENS)
        asked.append({"questions": questions, **measured, "floor_ms": floor})
    states = []
    for tokens in STATES:
        bodies = fresh(text, state=sizes.tokens(tokens), questions=1)
        measured = timed(connection, bodies, sizes.repeats(7), warm_up=2)
        floor = sizes.floor_ms(state=sizes.tokens(tokens), questions=1, steps=1)
        states.append({"state": sizes.tokens(tokens), **measured, "floor_ms": floor})
    connection.close()
    last, from_here = asked[-1], asked[-4] if len(asked) > 3 else asked[0]
    per_question = (last["p50_ms"] - from_here["p50_ms"]) / (last["questions"] - from_here["questions"])
    return {
        "state_tokens": sizes.tokens(STATE_TOKENS),
        "question_tokens": QUESTION_TOKENS,
        "questions": asked,
        "beyond": from_here["questions"],
        "ms_per_question_beyond": round(per_question, 3),
        "states": states,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    return command("scaling", __doc__, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
