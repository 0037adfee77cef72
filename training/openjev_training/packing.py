"""Examples to one packed sequence, through the server's own canvas: tokens, isolation, slots and targets.

The tokens of a question and of its canvas come from `openjev_server.canvas`; this module only lays them side by side
the way the engine does ([state | question 1 | canvas 1 | question 2 ...], positions restarting after the state), puts
noise into the slots, and moves the labels to other label tokens now and then so that all of them are trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from openjev_server.canvas.plan import Planner
from openjev_server.canvas.render import render
from openjev_server.canvas.schema import as_text, schema_of
from openjev_server.canvas.template import Template
from openjev_server.canvas.templates import NANO_LABEL
from openjev_server.canvas.tokenizer import TextTokenizer

from .examples import Example

__all__ = ["BLOCK", "MAX_CANDIDATES", "Batch", "Compiled", "CompiledItem", "Encoder", "chunks", "pack"]

BLOCK = 128
"""Rows of an attention tile."""
MAX_CANDIDATES = 255
_LABELS = 255


@dataclass(frozen=True, slots=True)
class CompiledItem:
    suffix: NDArray[np.int32]
    canvas: NDArray[np.int32]
    slot: int
    candidates: NDArray[np.int32]
    target: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Compiled:
    state: NDArray[np.int32]
    items: tuple[CompiledItem, ...]

    @property
    def tokens(self) -> int:
        return len(self.state) + sum(len(i.suffix) + len(i.canvas) for i in self.items)


@dataclass(slots=True)
class Batch:
    """One packed sequence of T rows, S slots of at most K candidates."""

    ids: NDArray[np.int32]
    """[T]"""
    positions: NDArray[np.int32]
    """[T]"""
    doc: NDArray[np.int32]
    """[T], -1 in the padding at the end."""
    segment: NDArray[np.int32]
    """[T], 0 in a state."""
    canvas: NDArray[np.bool_]
    """[T]"""
    text: NDArray[np.int32]
    """State rows whose next token is the state's too, for the language loss; [L], padded with 0."""
    texts: int
    """How many of them are real."""
    slots: NDArray[np.int32]
    """[S], padded with 0."""
    candidates: NDArray[np.int32]
    """[S, K], -1 where there is none."""
    targets: NDArray[np.float32]
    """[S, K]"""
    count: int
    """How many slots are real."""
    first_tile: NDArray[np.int32]
    """[T / BLOCK]: the first key tile that a query tile may see."""
    last_tile: NDArray[np.int32]
    """[T / BLOCK]"""
    tokens: int
    """Rows that are not padding."""

    def arrays(self) -> dict[str, NDArray[np.generic] | int]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


class Encoder:
    """Compiles examples with one template; drops what cannot be asked (a single answer has no slot)."""

    def __init__(
        self, tokenizer: TextTokenizer, template: Template = NANO_LABEL, *, state_limit: int | None = 2000
    ) -> None:
        self._tokenizer, self._template, self._limit = tokenizer, template, state_limit
        self._planner = Planner(tokenizer, template, max_width=4096)
        self._first = tokenizer.control("<o0>")
        self.plain: NDArray[np.int32] = tokenizer.plain
        self.vocab = tokenizer.vocab_size

    @classmethod
    def from_directory(cls, path: Path, *, state_limit: int | None = 2000) -> Encoder:
        return cls(TextTokenizer.from_directory(path), state_limit=state_limit)

    def compile(self, example: Example) -> Compiled:
        """States longer than the limit lose their middle: only training does that, and measuring never."""
        state = np.array(render(self._tokenizer, self._template.state, state=as_text(example.state)), dtype=np.int32)
        if self._limit is not None and len(state) > self._limit:
            half = self._limit // 2
            state = np.concatenate([state[:half], state[-half:]])
        items = []
        for item in example.items:
            plan = self._planner.isolated(schema_of(item.question))
            if len(plan.slots) != 1:
                continue
            target = np.array(item.target, dtype=np.float32)
            items.append(CompiledItem(plan.suffix, plan.canvas, int(plan.slots[0]), plan.candidates, target))
        return Compiled(state, tuple(items))

    def shifted(self, item: CompiledItem, offset: int) -> CompiledItem:
        """The same question with labels `<o(I + offset)>`; the caller keeps them in range."""

        def move(ids: NDArray[np.int32]) -> NDArray[np.int32]:
            return np.where((ids >= self._first) & (ids < self._first + _LABELS), ids + offset, ids).astype(np.int32)

        return CompiledItem(move(item.suffix), move(item.canvas), item.slot, move(item.candidates), item.target)

    def room(self, item: CompiledItem) -> int:
        """By how much the labels of a choice or score may be moved; 0 for a noul."""
        if item.candidates[0] < self._first:
            return 0
        return _LABELS - len(item.candidates)


def pack(
    compiled: Iterable[Compiled],
    length: int,
    rng: np.random.Generator,
    encoder: Encoder,
    *,
    slots: int = 2048,
    texts: int = 8192,
    width: int = MAX_CANDIDATES,
    shuffle_labels: float = 0.0,
    stray_noise: float = 0.0,
    misses: int = 6,
) -> tuple[Batch, list[Compiled]]:
    """Fills one sequence; returns it and what was drawn but did not fit.

    `stray_noise` is the share of slots whose noise is one of the candidates instead of any plain token. Drawing ends
    when the source does, or after `misses` examples that did not fit.
    """
    ids, positions = np.zeros(length, np.int32), np.zeros(length, np.int32)
    doc, segment = np.full(length, -1, np.int32), np.zeros(length, np.int32)
    canvas = np.zeros(length, np.bool_)
    reach, start = np.arange(length, dtype=np.int32), np.zeros(length, np.int32)
    language = np.zeros(length, np.bool_)
    where, candidates = np.zeros(slots, np.int32), np.full((slots, width), -1, np.int32)
    targets = np.zeros((slots, width), np.float32)
    n = used = documents = 0
    left: list[Compiled] = []
    for one in compiled:
        if n + one.tokens > length or used + len(one.items) > slots:
            left.append(one)
            if len(left) >= misses:
                break
            continue
        end = n + len(one.state)
        ids[n:end], positions[n:end] = one.state, np.arange(len(one.state))
        language[n : end - 1] = True
        start[n : n + one.tokens], doc[n : n + one.tokens] = n, documents
        n = end
        for number, drawn in enumerate(one.items, start=1):
            item = drawn
            if shuffle_labels and rng.random() < shuffle_labels and (room := encoder.room(item)):
                item = encoder.shifted(item, int(rng.integers(0, room + 1)))
            head, size = len(item.suffix), len(item.suffix) + len(item.canvas)
            ids[n : n + head], ids[n + head : n + size] = item.suffix, item.canvas
            positions[n : n + size] = len(one.state) + np.arange(size)
            segment[n : n + size] = number
            canvas[n + head : n + size] = True
            reach[n + head : n + size] = n + size - 1
            slot = n + head + item.slot
            stray = stray_noise and rng.random() < stray_noise
            ids[slot] = rng.choice(item.candidates) if stray else encoder.plain[rng.integers(0, len(encoder.plain))]
            where[used] = slot
            candidates[used, : len(item.candidates)] = item.candidates
            targets[used, : len(item.target)] = item.target
            used += 1
            n += size
        documents += 1
    start[n:] = min(n, length - 1)
    rows = np.flatnonzero(language)
    if len(rows) > texts:
        rows = np.sort(rng.choice(rows, texts, replace=False))
    picked = np.zeros(texts, np.int32)
    picked[: len(rows)] = rows
    tiles = length // BLOCK
    batch = Batch(
        ids,
        positions,
        doc,
        segment,
        canvas,
        picked,
        len(rows),
        where,
        candidates,
        targets,
        used,
        first_tile=start.reshape(tiles, BLOCK).min(1) // BLOCK,
        last_tile=reach.reshape(tiles, BLOCK).max(1) // BLOCK,
        tokens=n,
    )
    return batch, left


def chunks(compiled: Sequence[Compiled], length: int, slots: int) -> Iterable[Sequence[Compiled]]:
    """Consecutive runs that each fit one sequence."""
    begin, tokens, used = 0, 0, 0
    for i, one in enumerate(compiled):
        if one.tokens > length:
            raise ValueError(f"an example of {one.tokens} tokens does not fit {length}")
        if tokens + one.tokens > length or used + len(one.items) > slots:
            yield compiled[begin:i]
            begin, tokens, used = i, 0, 0
        tokens += one.tokens
        used += len(one.items)
    if begin < len(compiled):
        yield compiled[begin:]
