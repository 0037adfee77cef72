"""Everything a forward over packed rows needs to know, as one int32 buffer: one copy to the device a step.

The buffer is either exactly as large as the pass needs, or padded to fixed sizes so that a captured graph can read it
again and again: padding rows hold token 0, write to a row of the pool that nothing reads, and no tile covers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.fused.attention import TILE_FIELDS
from openjev_server.engine.packing import BlockSpan, PackedPass

__all__ = ["Columns", "Sizes", "TileRows", "columns_of", "fill"]

Int = NDArray[np.int64]
ALIGNMENT = 16
"""int32s; 64 bytes, so that every column can be read in whole cache lines."""


@dataclass(frozen=True, slots=True)
class TileRows:
    """Query rows of a tile in a sliding and in a full layer."""

    sliding: int
    full: int


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns, unpadded. Lengths: n rows that run, m rows that are read, N rows of the pass, t tiles."""

    tokens: Int
    position: Int
    is_canvas: Int
    store: Int
    rows: Int
    """[n] which row of the pass each row that runs is."""
    on_own_token: Int
    """[n] 1 where a frozen position of a later step is conditioned on its own token."""
    wanted: Int
    """[m] the rows that are read, among those that run."""
    wanted_rows: Int
    """[m] the same as rows of the pass."""
    pass_anchor: Int
    """[N], as the other `pass_` columns."""
    pass_position: Int
    pass_segment: Int
    pass_copy: Int
    pass_store: Int
    table: Int
    """Pool rows of the states' positions, one state after the other."""
    sliding: Int
    """[t * TILE_FIELDS], as the other tiles."""
    full: Int
    last: Int

    @property
    def sizes(self) -> Sizes:
        """The exact sizes."""
        return Sizes(
            rows=len(self.tokens),
            wanted=len(self.wanted),
            pass_rows=len(self.pass_anchor),
            table=len(self.table),
            sliding=len(self.sliding) // TILE_FIELDS,
            full=len(self.full) // TILE_FIELDS,
            last=len(self.last) // TILE_FIELDS,
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many entries the columns of a buffer have; its offsets follow from them alone."""

    rows: int
    wanted: int
    pass_rows: int
    table: int
    sliding: int
    full: int
    last: int

    def holds(self, other: Sizes) -> bool:
        """Whether a buffer of these sizes has room for the other's columns and for one padding row."""
        return (
            self.rows > other.rows
            and self.wanted >= other.wanted
            and self.pass_rows >= other.pass_rows
            and self.table >= other.table
            and self.sliding >= other.sliding
            and self.full >= other.full
            and self.last >= other.last
        )

    def lengths(self) -> dict[str, int]:
        """int32 entries of every column, in the order in which they lie in the buffer."""
        per_row = ("tokens", "position", "is_canvas", "store", "rows", "on_own_token")
        per_pass_row = ("pass_anchor", "pass_position", "pass_segment", "pass_copy", "pass_store")
        return {
            **dict.fromkeys(per_row, self.rows),
            **dict.fromkeys(("wanted", "wanted_rows"), self.wanted),
            **dict.fromkeys(per_pass_row, self.pass_rows),
            "table": self.table,
            "sliding": self.sliding * TILE_FIELDS,
            "full": self.full * TILE_FIELDS,
            "last": self.last * TILE_FIELDS,
        }

    def offsets(self) -> dict[str, int]:
        """Where every column starts."""
        starts, offset = {}, 0
        for name, length in self.lengths().items():
            starts[name] = offset
            offset += -(-length // ALIGNMENT) * ALIGNMENT
        return starts

    @property
    def total(self) -> int:
        """int32 entries of the buffer."""
        return sum(-(-length // ALIGNMENT) * ALIGNMENT for length in self.lengths().values())


def columns_of(
    packed: PackedPass,
    blocks: Sequence[BlockSpan],
    *,
    chosen: Int,
    wanted: Int,
    on_own_token: NDArray[np.bool_] | None,
    window: int,
    tiles: TileRows,
) -> Columns:
    """Columns of a forward over the pass rows `chosen` [n] that reads the pass rows `wanted` [m] of `blocks`.

    `on_own_token` None is the first step: states run as well as blocks.
    """
    place = np.zeros(packed.rows, np.int64)
    place[chosen] = np.arange(len(chosen))
    cutter = _Cutter(packed, blocks, states=on_own_token is None)
    sliding, full = cutter.cut(chosen, (window, tiles.sliding), (None, tiles.full))
    (last,) = _Cutter(packed, blocks, states=False).cut(wanted, (None, tiles.full))
    return Columns(
        tokens=packed.tokens[chosen],
        position=packed.positions[chosen],
        is_canvas=packed.is_canvas[chosen].astype(np.int64),
        store=packed.store[chosen],
        rows=chosen,
        on_own_token=np.zeros(len(chosen), np.int64) if on_own_token is None else on_own_token.astype(np.int64),
        wanted=place[wanted],
        wanted_rows=wanted,
        pass_anchor=packed.anchor,
        pass_position=packed.positions,
        pass_segment=packed.segment.astype(np.int64),
        pass_copy=packed.copy.astype(np.int64),
        pass_store=packed.store,
        table=np.concatenate([state.rows for state in packed.states]),
        sliding=sliding,
        full=full,
        last=last,
    )


def fill(buffer: NDArray[np.int32], sizes: Sizes, columns: Columns, *, unread_row: int) -> None:
    """Writes the columns into a buffer of these sizes, and padding behind them."""
    offsets = sizes.offsets()
    padding = {"store": unread_row, "pass_store": unread_row, "wanted": sizes.rows - 1}
    for name, length in sizes.lengths().items():
        values = getattr(columns, name)
        start = offsets[name]
        buffer[start : start + len(values)] = values
        buffer[start + len(values) : start + length] = padding.get(name, 0)


class _Cutter:
    """Cuts runs of rows into tiles. Rows of one state's blocks may share a tile: they read the same state keys."""

    def __init__(self, packed: PackedPass, blocks: Sequence[BlockSpan], *, states: bool) -> None:
        spans = packed.states if states else ()
        self._length = np.array([state.stop for state in packed.states], np.int64)
        self._offset = np.cumsum([0, *(len(state.rows) for state in packed.states)])[:-1]
        self._state_row = np.array([state.row for state in spans], np.int64)
        self._state_start = np.array([state.start for state in spans], np.int64)
        self._state_stop = np.array([state.stop for state in spans], np.int64)
        rows = np.array([(block.row, block.canvas, block.stop, block.item) for block in blocks], np.int64)
        self._block_row, self._block_canvas, self._block_stop, self._block_item = rows.reshape(-1, 4).T
        self._rows = packed.rows

    def cut(self, chosen: Int, *layers: tuple[int | None, int]) -> list[Int]:
        """Flat tiles [t * TILE_FIELDS] over the rows `chosen`, ascending, in places among them: for each kind of layer,
        which is a window and the most rows of a tile."""
        # All rows of a state run where any does, one after the other.
        places = np.searchsorted(chosen, self._state_row)
        runs = self._runs(chosen)
        return [
            np.concatenate([self._states(places, window, size), self._blocks(runs, window, size)]).reshape(-1)
            for window, size in layers
        ]

    def _states(self, places: Int, window: int | None, size: int) -> Int:
        item, begin, end = _pieces(self._state_start, self._state_stop, size)
        tiles = np.zeros((len(item), TILE_FIELDS), np.int64)
        tiles[:, 0] = places[item] + begin - self._state_start[item]
        tiles[:, 1] = end - begin
        tiles[:, 2] = self._offset[item]
        tiles[:, 3] = _low(begin, window)
        tiles[:, 4] = end
        return tiles

    def _runs(self, chosen: Int) -> _Runs:
        if not len(self._block_row):
            nothing = np.zeros(0, np.int64)
            return _Runs(chosen, nothing, nothing, nothing, nothing)
        block = np.searchsorted(self._block_row, chosen, side="right") - 1
        items = np.where(chosen < self._block_stop[block], self._block_item[block], -1)
        items[block < 0] = -1
        edges = np.concatenate([[0], 1 + np.flatnonzero(items[1:] != items[:-1]), [len(items)]])
        starts, stops = edges[:-1], edges[1:]
        runs = np.flatnonzero(items[starts] >= 0) if len(items) else edges[:0]
        return _Runs(chosen, block, starts[runs], stops[runs], items[starts[runs]])

    def _blocks(self, runs: _Runs, window: int | None, size: int) -> Int:
        run, begin, end = _pieces(runs.starts, runs.stops, size)
        item = runs.items[run]
        length = self._length[item]
        first, last = runs.block[begin], runs.block[end - 1]
        start = self._block_row[first]
        # How far into its block's prompt a tile's first row looks from: a canvas looks from the prompt's end. Rows of a
        # second block begin at the state again.
        ahead = np.minimum(runs.rows[begin], self._block_canvas[first]) - start
        tiles = np.zeros((len(item), TILE_FIELDS), np.int64)
        tiles[:, 0] = begin
        tiles[:, 1] = end - begin
        tiles[:, 2] = self._offset[item]
        tiles[:, 3] = np.minimum(_low(length + np.where(first == last, ahead, 0), window), length)
        tiles[:, 4] = length
        tiles[:, 5] = start + _low(ahead, window)
        bottom = runs.rows[end - 1]
        tiles[:, 6] = np.where(bottom < self._block_canvas[last], bottom + 1, self._block_stop[last])
        return tiles


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of chosen rows that are in blocks of one item."""

    rows: Int
    """The chosen rows of the pass."""
    block: Int
    """Per chosen row the block that it is in, or the last one before it."""
    starts: Int
    stops: Int
    items: Int


def _pieces(start: Int, stop: Int, size: int) -> tuple[Int, Int, Int]:
    """Cuts ranges into pieces of at most `size`: the range's number, begin and end of every piece."""
    counts = -(-(stop - start) // size)
    number = np.repeat(np.arange(len(start)), counts)
    within = np.arange(len(number)) - np.repeat(np.cumsum(counts) - counts, counts)
    begin = start[number] + within * size
    return number, begin, np.minimum(begin + size, stop[number])


def _low(anchor: Int, window: int | None) -> Int:
    """The first state position that a row with this anchor sees."""
    return np.zeros_like(anchor) if window is None else np.maximum(0, anchor - window + 1)
