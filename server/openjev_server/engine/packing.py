"""Rows of one packed pass, without padding: which token stands where and what it may attend to.

Every item contributes the piece of its state that this pass computes, then per block the question suffix and the
canvas replicas. Encoder rows (state, suffix) are causal; canvas rows see state, their suffix and their own replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.protocol import CanvasBlock, Int32
from openjev_server.engine.rows import Rows

__all__ = ["BlockSpan", "KeyRows", "PackedPass", "PassBlock", "PassItem", "StateSpan", "pack", "visible"]

STATE_SEGMENT = 0
ENCODER = -1


@dataclass(frozen=True, slots=True, eq=False)
class PassBlock:
    """A block that takes part in a pass."""

    ticket: int
    """Whose block it is; several requests may share a state."""
    index: int
    """The block's number in its request."""
    block: CanvasBlock

    @property
    def rows(self) -> int:
        """Rows of suffix and canvases."""
        return len(self.block.suffix) + self.block.canvases.size


@dataclass(frozen=True, slots=True)
class PassItem:
    """A state's share of a pass: a piece of it, and blocks that need it complete by then."""

    state: Int32
    """The whole state, shape [T]."""
    rows: Rows
    """Pool rows of the state's tokens [0, stop), shape [stop]."""
    start: int
    """Tokens [0, start) are in the pool already."""
    stop: int
    """Tokens [start, stop) are rows of this pass."""
    blocks: tuple[PassBlock, ...]
    """Empty unless `stop == len(state)`."""


@dataclass(frozen=True, slots=True)
class StateSpan:
    """Where an item's state lies: its pool rows [stop], and its first row in the pass."""

    rows: Rows
    start: int
    stop: int
    row: int


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Where a block's rows lie: suffix [row, canvas), then the replicas one after the other [canvas, stop)."""

    item: int
    """Index of the item whose state the block reads."""
    source: PassBlock
    row: int
    canvas: int
    stop: int

    @property
    def block(self) -> CanvasBlock:
        return self.source.block

    @property
    def slot_rows(self) -> NDArray[np.int64]:
        """Rows of the slots, replica by replica, shape [replicas * S]."""
        replicas, width = self.block.canvases.shape
        starts = self.canvas + np.arange(replicas)[:, None] * width
        rows: NDArray[np.int64] = (starts + self.block.slots[None, :]).reshape(-1)
        return rows


@dataclass(frozen=True, slots=True)
class PackedPass:
    """Shape [N] arrays over the rows of the pass, and the spans that cut them up."""

    tokens: NDArray[np.int64]
    positions: NDArray[np.int64]
    anchor: NDArray[np.int64]
    """The last prompt position a row may see: its own for an encoder row, the canvas's start for a canvas row."""
    segment: NDArray[np.int32]
    """0 for a state row, else 1 + the running number of the block in the pass."""
    copy: NDArray[np.int32]
    """-1 for an encoder row, else the running number of the canvas replica in the pass."""
    store: Rows
    """Pool row of each row's keys and values."""
    states: tuple[StateSpan, ...]
    blocks: tuple[BlockSpan, ...]

    @property
    def is_canvas(self) -> NDArray[np.bool_]:
        canvas: NDArray[np.bool_] = self.copy != ENCODER
        return canvas

    @property
    def rows(self) -> int:
        return len(self.tokens)


def pack(items: Sequence[PassItem], block_rows: Rows) -> PackedPass:
    """Lays the items out one after the other; `block_rows` are the pool rows of all their blocks, in order.

    Raises ValueError for blocks of an incomplete state.
    """
    rows = _Rows()
    states: list[StateSpan] = []
    blocks: list[BlockSpan] = []
    copies = 0
    for number, item in enumerate(items):
        length = len(item.state)
        if item.blocks and item.stop != length:
            raise ValueError("blocks need the whole state")
        states.append(StateSpan(item.rows, item.start, item.stop, rows.count))
        rows.add(item.state[item.start : item.stop], item.start, STATE_SEGMENT, ENCODER)
        rows.store(item.rows[item.start : item.stop])
        for source in item.blocks:
            block = source.block
            segment = len(blocks) + 1
            first = rows.count
            rows.add(block.suffix, length, segment, ENCODER)
            canvas = rows.count
            for replica in block.canvases:
                rows.add(replica, length + len(block.suffix), segment, copies)
                copies += 1
            rows.store(block_rows[: source.rows])
            block_rows = block_rows[source.rows :]
            blocks.append(BlockSpan(number, source, first, canvas, rows.count))
    return rows.finish(tuple(states), tuple(blocks))


class _Rows:
    def __init__(self) -> None:
        self.count = 0
        self._parts: list[tuple[Int32, int, int, int]] = []
        self._store: list[Rows] = []

    def add(self, tokens: Int32, position: int, segment: int, copy: int) -> None:
        self._parts.append((tokens, position, segment, copy))
        self.count += len(tokens)

    def store(self, rows: Rows) -> None:
        self._store.append(rows)

    def finish(self, states: tuple[StateSpan, ...], blocks: tuple[BlockSpan, ...]) -> PackedPass:
        lengths = [len(part[0]) for part in self._parts]

        def spread(column: int) -> NDArray[np.int64]:
            return np.repeat(np.array([part[column] for part in self._parts], dtype=np.int64), lengths)

        starts = np.cumsum([0, *lengths[:-1]])
        first, copy = spread(1), spread(3).astype(np.int32)
        positions = first + np.arange(self.count) - np.repeat(starts, lengths)
        return PackedPass(
            tokens=np.concatenate([part[0] for part in self._parts]).astype(np.int64),
            positions=positions,
            anchor=np.where(copy == ENCODER, positions, first),
            segment=spread(2).astype(np.int32),
            copy=copy,
            store=np.concatenate(self._store),
            states=states,
            blocks=blocks,
        )


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The keys one tile of queries looks at: state positions [low, high), then whole rows [first, last) of the pass."""

    state: StateSpan
    low: int
    high: int
    first: int
    last: int

    def index(self, packed: PackedPass) -> Rows:
        """Pool rows, shape [K]."""
        return np.concatenate([self.state.rows[self.low : self.high], packed.store[self.first : self.last]])


def visible(packed: PackedPass, queries: NDArray[np.int64], keys: KeyRows, window: int | None) -> NDArray[np.bool_]:
    """Which keys the queries attend to, shape [len(queries), K]; all of them belong to one item.

    `window` None means full attention. A row sees the prompt keys less than `window` positions before its anchor,
    the anchor included; a canvas row also sees its whole canvas.
    """
    count = keys.high - keys.low
    own = slice(keys.first, keys.last)
    key_segment = np.concatenate([np.full(count, STATE_SEGMENT, np.int32), packed.segment[own]])[None, :]
    key_copy = np.concatenate([np.full(count, ENCODER, np.int32), packed.copy[own]])[None, :]
    key_position = np.concatenate([np.arange(keys.low, keys.high), packed.positions[own]])[None, :]
    segment, copy, anchor = (column[queries][:, None] for column in (packed.segment, packed.copy, packed.anchor))
    prompt = (key_copy == ENCODER) & ((key_segment == STATE_SEGMENT) | (key_segment == segment))
    prompt &= key_position <= anchor
    if window is not None:
        prompt &= key_position > anchor - window
    seen: NDArray[np.bool_] = prompt | ((copy != ENCODER) & (key_copy == copy))
    return seen
