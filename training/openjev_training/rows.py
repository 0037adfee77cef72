"""Labelled rows and plain texts, and the wall between training data and held-out tasks."""

from __future__ import annotations

import json
import lzma
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["HELD_OUT", "SPLITS", "Guard", "Row", "Split", "read_rows", "read_texts", "sample_rows"]

HELD_OUT = frozenset(
    {"hwu64", "snips", "arc_warrant", "sgd.service"}
    | {"creak", "moderation", "wellformed", "boolq"}
    | {"vader.tweets", "cad.nli.score"}
)
"""Whole tasks that measure generalisation; none of their rows, states or texts is trained on."""

_CLAIM_TASKS = frozenset({"creak", "boolq"})
"""Held-out tasks whose instruction is the example itself."""

Split = Literal["train", "cal", "test"]
SPLITS: tuple[Split, ...] = ("train", "cal", "test")


@dataclass(frozen=True, slots=True)
class Row:
    """One labelled decision. `gold` counts from 0 (a noul: 0 is true, 1 is false); `share` are annotators' shares."""

    task: str
    kind: Literal["choice", "noul", "score"]
    state: str
    instructions: str
    names: tuple[str, ...]
    descriptions: tuple[str | None, ...]
    gold: int
    share: tuple[float, ...] | None


def _row(raw: dict[str, Any]) -> Row:
    kind, criteria, dist = raw["type"], raw["criteria"], raw.get("dist")
    names: tuple[str, ...] = ("yes", "no")
    descriptions: tuple[str | None, ...] = (None, None)
    if kind == "choice":
        names, descriptions = tuple(criteria), tuple(criteria.values())
        gold = names.index(raw["gold"])
        share = None if dist is None else tuple(float(dist.get(n, 0.0)) for n in names)
    elif kind == "score":
        names = tuple(criteria)
        descriptions = (None,) * len(names)
        gold = int(raw["gold"])
        share = None if dist is None else tuple(float(x) for x in dist)
    else:
        gold = 0 if raw["gold"] else 1
        share = None if dist is None else (float(dist), 1.0 - float(dist))
    if share is not None and abs(sum(share) - 1) > 0.02:
        share = None
    return Row(raw["task"], kind, raw["state"], raw["instructions"], names, descriptions, gold, share)


def read_rows(data: Path, split: Split) -> Iterator[Row]:
    with lzma.open(data / f"{split}.jsonl.xz", "rt") as lines:
        for line in lines:
            yield _row(json.loads(line))


def read_texts(data: Path) -> Iterator[tuple[str, str]]:
    """(source, text) of the plain texts."""
    with lzma.open(data / "text.jsonl.xz", "rt") as lines:
        for line in lines:
            raw = json.loads(line)
            yield raw["source"], raw["text"]


def sample_rows(rows: Iterable[Row], count: int, seed: int) -> list[Row]:
    """A fixed sample: the same rows for the same seed, whatever the order of the files."""
    ordered = sorted(rows, key=lambda r: (r.task, r.state, r.instructions, r.names, r.gold))
    return random.Random(seed).sample(ordered, count) if len(ordered) > count else ordered


def _normal(text: str) -> str:
    """Case, spaces, outer punctuation and the speaker's name (`Assistant` or `Agent`) make no other text."""
    return re.sub(r"\s+", " ", text.lower().replace("assistant:", "agent:")).strip(" \"'.")


_CLAIM_FORMS = re.compile(
    r"factual|above claim|claim above|^claim:|verifiable fact|following (statement|sentence) (true|make sense)"
    r"|factually correct|is the following (statement|sentence|claim)|can it be verified",
    re.IGNORECASE,
)


class Guard:
    """Says which training rows and texts share something with a protected row.

    Protected are all states of held-out tasks (and the claims of tasks whose instruction is the example), and of the
    trained tasks' test rows every long instruction and option, which can reappear in the plain texts.
    """

    def __init__(self, held_out: Iterable[Row], test: Iterable[Row]) -> None:
        self._states: set[str] = set()
        for row in held_out:
            self._states.add(_normal(row.state))
            if row.task in _CLAIM_TASKS:
                self._states.add(_normal(row.instructions))
        self._states -= {"general knowledge", ""}
        self._pieces = set(self._states)
        for row in test:
            for piece in (row.instructions, row.state, *row.names):
                if len(piece) > 30:
                    self._pieces.add(_normal(piece))

    @classmethod
    def from_data(cls, data: Path) -> Guard:
        every = [row for split in SPLITS for row in read_rows(data, split) if row.task in HELD_OUT]
        return cls(every, (row for row in read_rows(data, "test") if row.task not in HELD_OUT))

    def _prefixes(self, text: str) -> Iterator[str]:
        """A dialogue holds the earlier turns of itself, which may be another row's whole state."""
        lines = text.split("\n")
        for i in range(1, min(len(lines), 40) + 1):
            yield _normal("\n".join(lines[:i]))

    def allows_row(self, row: Row) -> bool:
        if row.task in HELD_OUT or _normal(row.instructions) in self._states:
            return False
        return not any(p in self._states for p in self._prefixes(row.state))

    def allows_text(self, source: str, text: str) -> bool:
        if source == "cot" and _CLAIM_FORMS.search("\n".join(text.split("\n")[:3])):
            return False
        pieces = [text, *text.split("\n")]
        pieces += [line.split(": ", 1)[1] for line in text.split("\n") if ": " in line]
        pieces += [line.lstrip("- ") for line in text.split("\n") if line.startswith("- ")]
        if any(_normal(p) in self._pieces for p in pieces):
            return False
        return not any(p in self._states for p in self._prefixes(text))
