"""The mixture: which kind of example comes next."""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from openjev_server.questions import Choice, Option, Text

from . import augment, judgements, limits, templates
from .distractors import misled
from .examples import Example, Labelled, from_row, one_hot, smooth
from .reading import Reader
from .rows import Row

__all__ = ["MIXTURES", "PLAIN", "SKILLS", "SKILLS_2", "Mixture", "Sampler"]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of the sources, and how much is changed about rows."""

    rows: float
    reading: float
    templates: float
    threads: float
    """Long states: several states in one, with a question about one of them."""
    augmented: bool
    smoothing: float
    """Mass that labels give to the uniform distribution."""
    judgements: float = 0.0
    limits: float = 0.0
    misled: float = 0.0
    """Share of the examples from rows, templates and threads whose state also names options (`distractors`)."""


SKILLS = Mixture(rows=0.62, reading=0.17, templates=0.15, threads=0.06, augmented=True, smoothing=0.04)
PLAIN = Mixture(rows=1.0, reading=0.0, templates=0.0, threads=0.0, augmented=False, smoothing=0.0)
"""What the probe was trained on: rows as they stand."""
SKILLS_2 = Mixture(
    rows=0.54,
    reading=0.13,
    templates=0.11,
    threads=0.05,
    augmented=True,
    smoothing=0.04,
    judgements=0.12,
    limits=0.05,
    misled=0.12,
)
"""What `held-out` missed: routing past metadata that names options, yes/no about grammar, claims and what is rare."""
MIXTURES = {"plain": PLAIN, "skills": SKILLS, "skills-2": SKILLS_2}
"""By the name that a plan gives."""

_KINDS = ("rows", "reading", "templates", "threads", "judgements", "limits")
_WEIGHTS = {"persona": 0.5, "csqa2": 0.6, "aqua": 0.3, "hatespeech.choice": 0.6, "hatespeech.noul": 0.6, "fewrel": 0.8}
_READING = ("nli", "mnli", "cad", "copa", "cosmos", "qasc", "sgd", "pubmed", "bbq", "strategy", "sense", "vader")


class Sampler:
    def __init__(self, rows: Sequence[Row], reader: Reader, mixture: Mixture) -> None:
        self._mixture, self._reader = mixture, reader
        tasks: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            tasks[row.task].append(row)
        self._tasks = [tasks[t] for t in sorted(tasks)]
        weights = []
        for name in sorted(tasks):
            factor = _WEIGHTS.get(
                name, 1.5 if mixture.augmented and any(name.startswith(p) or f".{p}" in name for p in _READING) else 1.0
            )
            weights.append(len(tasks[name]) ** 0.5 * factor)
        self._cumulative = list(accumulate(weights))
        self._siblings: dict[str, list[Row]] = defaultdict(list)
        self._closed: dict[str, list[str]] = {}
        self._pools: dict[str, dict[str, list[str]]] = {}
        for name, members in tasks.items():
            for row in members:
                self._siblings[row.state].append(row)
            if members[0].kind != "choice":
                continue
            counts = Counter(n for row in members for n in row.names if n not in augment.NONE_NAMES)
            if not counts:
                continue
            # A fixed label set; not where the instruction holds half of the example, or the names come in two wordings.
            wordings = {row.instructions for row in members}
            if len(wordings) <= 5 and len(counts) <= 220 and sum(counts.values()) / len(counts) > 40:
                self._closed[name] = sorted(counts)
                pool: dict[str, list[str]] = defaultdict(list)
                for row in members:
                    pool[row.names[row.gold]].append(row.state)
                self._pools[name] = dict(pool)
        self._labels = sorted({n for names in self._closed.values() for n in names})

    @property
    def closed_tasks(self) -> dict[str, int]:
        return {t: len(n) for t, n in self._closed.items()}

    def _row(self, rng: random.Random) -> Row:
        return rng.choice(self._tasks[bisect(self._cumulative, rng.random() * self._cumulative[-1])])

    def _item(self, rng: random.Random, row: Row, *, many: bool = False) -> Labelled:
        if not self._mixture.augmented:
            if row.kind == "choice":
                closed = self._closed.get(row.task)
                return augment.plain_choice(rng, row, closed)
            return from_row(row)
        if row.kind == "noul":
            return augment.from_noul(rng, row)
        if row.kind == "score":
            return augment.row_score(rng, row)
        if not many and rng.random() < 0.10 and len(row.instructions) < 200:
            return augment.row_noul(rng, row)
        return augment.row_choice(
            rng, row, self._closed.get(row.task), self._pools.get(row.task, {}), many=many, extra=self._labels
        )

    def _from_rows(self, rng: random.Random) -> Example:
        row = self._row(rng)
        many = self._mixture.augmented and rng.random() < 0.012 and row.task in self._closed
        items = [self._item(rng, row, many=many)]
        siblings = self._siblings[row.state]
        if len(siblings) < 400:
            items += [
                self._item(rng, other) for other in rng.sample(siblings, min(len(siblings), 3)) if other is not row
            ]
        state: Text = row.state
        if self._mixture.augmented:
            if row.state != "General knowledge.":
                state = augment.dress_state(rng, row.state)
                if rng.random() < 0.008:  # nothing to go by: every answer is as good as another
                    state = rng.choice(("", "...", "n/a", "-"))
                    items = [replace(i, target=tuple(1 / len(i.target) for _ in i.target)) for i in items]
            elif rng.random() < 0.3:
                state = rng.choice(("", "Common sense.", "Use what you know.", "General knowledge"))
            items = [Labelled(augment.reword(rng, i.question), i.target) for i in items]
        return Example(state, tuple(items))

    def _thread(self, rng: random.Random) -> Example | None:
        """Numbered messages, one of which is asked about."""
        kinds = [
            r
            for r in (self._row(rng) for _ in range(rng.choice([3, 5, 8, 14])))
            if r.state != "General knowledge." and len(r.state) < 1500
        ]
        kinds = [r for i, r in enumerate(kinds) if r.state not in {k.state for k in kinds[:i]}]
        if len(kinds) < 2:
            return None
        place = rng.randrange(len(kinds))
        word = rng.choice(("Message", "Text", "Note", "Entry", "#"))
        names = [f"{word} {i + 1}" for i in range(len(kinds))]
        where = f"{word} {place + 1}"
        if rng.random() < 0.35:
            place, where = len(kinds) - 1, f"the last {'one' if word == '#' else word.lower()}"
        state: Text
        if rng.random() < 0.25:
            state = {n.lower().replace(" ", "_"): r.state for n, r in zip(names, kinds, strict=True)}
        else:
            state = "\n".join(f"{n}: {r.state}" for n, r in zip(names, kinds, strict=True))
        item = self._item(rng, kinds[place])
        text = item.question.instructions if isinstance(item.question.instructions, str) else "Which fits?"
        wording = rng.choice(("About {w}: {t}", "{t} (Only {w} counts.)", "Look at {w}. {t}")).format(w=where, t=text)
        question = replace(item.question, instructions=wording)
        items = [Labelled(question, item.target)]
        if rng.random() < 0.3:
            line = rng.choice(kinds)
            options = list(dict.fromkeys(names))
            found = Choice("q2", f'Where is this said: "{line.state[:160]}"', tuple(Option(n) for n in options))
            items.append(Labelled(found, one_hot(len(options), kinds.index(line))))
        return Example(state, tuple(items))

    def draw(self, rng: random.Random) -> Example:
        m = self._mixture
        example: Example | None = None
        while example is None or not example.items:
            kind = rng.choices(_KINDS, [getattr(m, kind) for kind in _KINDS])[0]
            if kind == "rows":
                example = self._from_rows(rng)
            elif kind == "reading":
                example = self._reader.draw(rng)
            elif kind == "templates":
                example = templates.draw(rng)
            elif kind == "judgements":
                example = judgements.draw(rng, self._reader.docs) if self._reader.docs else None
            elif kind == "limits":
                example = limits.draw(rng)
            else:
                example = self._thread(rng)
            if example is not None and m.misled and kind not in ("reading", "judgements") and rng.random() < m.misled:
                example = misled(rng, example)
        if m.smoothing:
            items = tuple(Labelled(i.question, smooth(i.target, m.smoothing)) for i in example.items)
            example = Example(example.state, items)
        return example
