"""States and option lists at the edges: hundreds of options, states that say nothing, very long ones.

Small samples of our own composing, to show what happens, not to measure it finely.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from openjev_server.questions import Choice, Option, Question, Text
from tokenizers import Tokenizer

from .evaluate import Served
from .everyday import CASES

__all__ = ["edges", "filled", "lookup"]

STEPS = 2
IRRELEVANT = "Basalt forms when lava that is rich in iron and magnesium cools quickly near the surface of a planet."
_SYLLABLES = ("ba", "do", "fen", "gri", "hul", "ka", "lor", "mi", "nep", "os", "pra", "quil", "ru", "sta", "tev", "zan")

Case = tuple[Text, Sequence[Question]]


def lookup(count: int, rng: random.Random) -> tuple[Text, Choice, int]:
    """A state that names one of `count` made-up places, the question which, and the right answer."""
    names: list[str] = []
    while len(names) < count:
        name = "".join(rng.choices(_SYLLABLES, k=3)).capitalize()
        if name not in names:
            names.append(name)
    right = rng.randrange(count)
    state = f"The parcel leaves tonight and has to be delivered to {names[right]}. Signature required."
    return state, Choice("q", "Where does the parcel go?", tuple(Option(name) for name in names)), right


def filled(text: str, tokens: int, count: Callable[[str], int], rng: random.Random) -> str:
    """`text`, then log lines that have nothing to do with it until there are `tokens` tokens."""
    lines = [text]
    total = count(text)
    while total < tokens:
        line = f"{rng.randrange(24):02}:{rng.randrange(60):02} INFO cache node {rng.randrange(90)} refreshed"
        lines.append(line)
        total += count("\n" + line)
    return "\n".join(lines)


def edges(checkpoint: Path, *, lookups: int, long_cases: int, long_tokens: int, seed: int = 7) -> dict[str, Any]:
    """Accuracy by number of options; confidence and agreement under other states. Raises EngineError."""
    served, rng = Served(checkpoint), random.Random(seed)
    out: dict[str, Any] = {"weights": served.info.weights_hash, "steps": STEPS, "options": {}, "states": {}}
    for number in (2, 16, 64, 255):
        rows = [lookup(number, rng) for _ in range(lookups)]
        found = [p[0] for p in served.ask([(state, (q,)) for state, q, _ in rows], steps=STEPS)]
        right = [int(np.argmax(p)) == row[2] for p, row in zip(found, rows, strict=True)]
        top = float(np.mean([max(p) for p in found]))
        out["options"][str(number)] = {"rows": lookups, "right": float(np.mean(right)), "top probability": top}
    cases: list[Case] = [(state, tuple(q for q, _ in questions)) for state, questions in CASES]
    normal = _answers(served, cases)
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    long: dict[int, Case] = {}
    for place, (state, questions) in enumerate(cases):
        if isinstance(state, str) and len(long) < long_cases:
            long[place] = (filled(state, long_tokens, count, rng), questions)
    asked: dict[str, dict[int, Case]] = {
        "as they are": dict(enumerate(cases)),
        "empty": {place: ("", questions) for place, (_, questions) in enumerate(cases)},
        "irrelevant": {place: (IRRELEVANT, questions) for place, (_, questions) in enumerate(cases)},
        f"followed by log lines, {long_tokens} tokens": long,
    }
    for name, members in asked.items():
        answers = [p for found in _answers(served, list(members.values())) for p in found]
        plain = [p for place in members for p in normal[place]]
        same = [int(np.argmax(a)) == int(np.argmax(b)) for a, b in zip(answers, plain, strict=True)]
        out["states"][name] = {
            "questions": len(answers),
            "top probability": float(np.mean([max(p) for p in answers])),
            "top probability as they are": float(np.mean([max(p) for p in plain])),
            "same answer as to the state as it is": float(np.mean(same)),
        }
    return out


def _answers(served: Served, cases: Sequence[Case]) -> list[list[list[float]]]:
    """By case and question; one at a time, so that a long state needs no more memory than its own."""
    return [served.ask([case], steps=STEPS)[0] for case in cases]
