"""Rows of one packed pass, without padding: which token stands where and what it may attend to.

Every request contributes its state (unless an earlier pass computed it), then per block the question suffix and the
canvas replicas. Encoder rows (state, suffix) are causal; canvas rows see state, their suffix and their own replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.protocol import CanvasBlock, Int32

__all__ = ["BlockSpan", "KeyRows", "PackedPass", "PassItem", "StateSpan", "pack", "visible"]

STATE_SEGMENT = 0
ENCODER = -1


@dataclass(frozen=True, slots=True)
class PassItem:
    """A request's share of a pass: a piece of its state, and blocks that need the state complete by then."""

    request: int
    state: Int32
    """The whole state, shape [T]."""
    start: int
    """State tokens [0, start) were computed by earlier passes: their keys and values are the prefix."""
    stop: int
    """State tokens [start, stop) are rows of this pass."""
    blocks: tuple[tuple[int, CanvasBlock], ...]
    """(index in the request, block); empty unless `stop == len(state)`."""


@dataclass(frozen=True, slots=True)
class StateSpan:
    """Where an item's state keys lie: first the prefix rows [prefix, prefix + start), then rows of this pass."""

    request: int
    prefix: int
    start: int
    row: int
    stop: int

    def keys(self, prefix_rows: int, low: int, high: int) -> NDArray[np.int64]:
        """Where state positions [low, high) lie in `concatenate(prefix, rows)`, shape [high - low]."""
        position = np.arange(low, high)
        own = prefix_rows + self.row + position - self.start
        places: NDArray[np.int64] = np.where(position < self.start, self.prefix + position, own)
        return places


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """Where a block's rows lie: suffix [row, canvas), then the replicas one after the other [canvas, stop)."""

    item: int
    """Index of the item whose state the block reads."""
    index: int
    """The block's index in its request."""
    row: int
    canvas: int
    stop: int
    block: CanvasBlock

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
    segment: NDArray[np.int32]
    """0 for a state row, else 1 + the running number of the block in the pass."""
    copy: NDArray[np.int32]
    """-1 for an encoder row, else the running number of the canvas replica in the pass."""
    prompt: NDArray[np.int64]
    """For a canvas row, how many prompt tokens precede the canvas; 0 for encoder rows."""
    states: tuple[StateSpan, ...]
    blocks: tuple[BlockSpan, ...]
    prefix_rows: int

    @property
    def is_canvas(self) -> NDArray[np.bool_]:
        canvas: NDArray[np.bool_] = self.copy != ENCODER
        return canvas

    @property
    def rows(self) -> int:
        return len(self.tokens)


def pack(items: Sequence[PassItem]) -> PackedPass:
    """Lays the items out one after the other. Raises ValueError for blocks of an incomplete state."""
    rows = _Rows()
    states: list[StateSpan] = []
    blocks: list[BlockSpan] = []
    prefix = copies = 0
    for number, item in enumerate(items):
        length = len(item.state)
        if item.blocks and item.stop != length:
            raise ValueError("blocks need the whole state")
        states.append(StateSpan(item.request, prefix, item.start, rows.count, item.stop))
        prefix += item.start
        rows.add(item.state[item.start : item.stop], item.start, STATE_SEGMENT, ENCODER, 0)
        for index, block in item.blocks:
            segment = len(blocks) + 1
            first = rows.count
            rows.add(block.suffix, length, segment, ENCODER, 0)
            canvas = rows.count
            prompt = length + len(block.suffix)
            for replica in block.canvases:
                rows.add(replica, prompt, segment, copies, prompt)
                copies += 1
            blocks.append(BlockSpan(number, index, first, canvas, rows.count, block))
    return rows.finish(tuple(states), tuple(blocks), prefix)


class _Rows:
    def __init__(self) -> None:
        self.count = 0
        self._parts: list[tuple[Int32, int, int, int, int]] = []

    def add(self, tokens: Int32, position: int, segment: int, copy: int, prompt: int) -> None:
        self._parts.append((tokens, position, segment, copy, prompt))
        self.count += len(tokens)

    def finish(self, states: tuple[StateSpan, ...], blocks: tuple[BlockSpan, ...], prefix: int) -> PackedPass:
        lengths = [len(part[0]) for part in self._parts]

        def spread(column: int) -> NDArray[np.int64]:
            return np.repeat(np.array([part[column] for part in self._parts], dtype=np.int64), lengths)

        starts = np.cumsum([0, *lengths[:-1]])
        return PackedPass(
            tokens=np.concatenate([part[0] for part in self._parts]).astype(np.int64),
            positions=spread(1) + np.arange(self.count) - np.repeat(starts, lengths),
            segment=spread(2).astype(np.int32),
            copy=spread(3).astype(np.int32),
            prompt=spread(4),
            states=states,
            blocks=blocks,
            prefix_rows=prefix,
        )


@dataclass(frozen=True, slots=True)
class KeyRows:
    """The keys one tile of queries looks at: state positions [low, high), then whole rows [first, last) of the pass."""

    state: StateSpan
    low: int
    high: int
    first: int
    last: int

    def index(self, packed: PackedPass) -> NDArray[np.int64]:
        """Indices into `concatenate(prefix, rows)`, shape [K]."""
        own = np.arange(self.first, self.last) + packed.prefix_rows
        return np.concatenate([self.state.keys(packed.prefix_rows, self.low, self.high), own])


def visible(packed: PackedPass, queries: NDArray[np.int64], keys: KeyRows, window: int | None) -> NDArray[np.bool_]:
    """Which keys the queries attend to, shape [len(queries), K]; all of them belong to one request.

    `window` None means full attention. An encoder row sees keys less than `window` positions back, itself included;
    a canvas row sees the last `window - 1` prompt tokens and its whole canvas.
    """
    count = keys.high - keys.low
    own = slice(keys.first, keys.last)
    key_segment = np.concatenate([np.full(count, STATE_SEGMENT, np.int32), packed.segment[own]])[None, :]
    key_copy = np.concatenate([np.full(count, ENCODER, np.int32), packed.copy[own]])[None, :]
    key_position = np.concatenate([np.arange(keys.low, keys.high), packed.positions[own]])[None, :]
    segment, copy, position, prompt = (
        column[queries][:, None] for column in (packed.segment, packed.copy, packed.positions, packed.prompt)
    )
    readable = (key_copy == ENCODER) & ((key_segment == STATE_SEGMENT) | (key_segment == segment))
    causal = readable & (key_position <= position)
    prompted = readable
    if window is not None:
        causal &= key_position > position - window
        prompted = readable & (key_position > prompt - window)
    seen: NDArray[np.bool_] = np.where(copy == ENCODER, causal, prompted | (key_copy == copy))
    return seen
