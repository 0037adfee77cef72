"""Rows of one packed pass, without padding: which token stands where and what it may attend to.

Every item contributes the piece of its state that this pass computes, then per block the question suffix and the
canvas replicas. Encoder rows (state, suffix) are causal; canvas rows see state, their suffix and their own replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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
    rows: int = field(init=False)
    """Rows of suffix and canvases."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", len(self.block.suffix) + self.block.canvases.size)


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
    parts = _Parts()
    store: list[Rows] = []
    states: list[StateSpan] = []
    blocks: list[BlockSpan] = []
    for number, item in enumerate(items):
        length = len(item.state)
        if item.blocks and item.stop != length:
            raise ValueError("blocks need the whole state")
        states.append(StateSpan(item.rows, item.start, item.stop, parts.rows))
        parts.add(item.state[item.start : item.stop], item.start, STATE_SEGMENT)
        first = parts.rows
        for source in item.blocks:
            row = parts.rows
            parts.add(source.block.suffix, length, len(blocks) + 1)
            canvas = parts.rows
            parts.add_canvases(source.block.canvases, length + len(source.block.suffix), len(blocks) + 1)
            blocks.append(BlockSpan(number, source, row, canvas, parts.rows))
        store += (item.rows[item.start : item.stop], block_rows[: parts.rows - first])
        block_rows = block_rows[parts.rows - first :]
    positions, segment, copy, anchor = parts.columns()
    return PackedPass(
        tokens=np.concatenate(parts.tokens).astype(np.int64),
        positions=positions,
        anchor=anchor,
        segment=segment.astype(np.int32),
        copy=copy.astype(np.int32),
        store=np.concatenate(store),
        states=tuple(states),
        blocks=tuple(blocks),
    )


class _Parts:
    """Runs of rows with consecutive positions, in the order of the pass."""

    def __init__(self) -> None:
        self.rows = 0
        self.tokens: list[Int32] = []
        self._runs: list[tuple[int, int, int, int]] = []
        self._copies = 0

    def add(self, tokens: Int32, position: int, segment: int) -> None:
        """Encoder rows from this position on."""
        self.tokens.append(tokens)
        self._runs.append((len(tokens), position, segment, ENCODER))
        self.rows += len(tokens)

    def add_canvases(self, canvases: Int32, position: int, segment: int) -> None:
        """Canvas replicas [replicas, C], each from this position on."""
        replicas, width = canvases.shape
        self.tokens.append(canvases.ravel())
        self._runs += [(width, position, segment, self._copies + replica) for replica in range(replicas)]
        self._copies += replicas
        self.rows += replicas * width

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Position, segment, copy and anchor of every row."""
        lengths, first, segment, copy = np.array(self._runs, dtype=np.int64).reshape(-1, 4).T
        run = np.repeat(np.arange(len(lengths)), lengths)
        positions = (first - (np.cumsum(lengths) - lengths))[run] + np.arange(self.rows)
        copies = copy[run]
        return positions, segment[run], copies, np.where(copies == ENCODER, positions, first[run])


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
