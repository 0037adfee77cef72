"""Cuts a packed pass into attention tiles, so that no mask is ever as wide as the pass.

A tile is a run of query rows of one request with just the keys they can see. The widest mask is `TILE_ROWS` queries by
one request's keys, whatever else is packed beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.packing import BlockSpan, KeyRows, PackedPass, StateSpan, visible

__all__ = ["TILE_ROWS", "Tile", "canvas_rows", "cut", "slot_rows"]

TILE_ROWS = 128
"""Small enough that a causal tile computes few masked scores, large enough that a kernel call pays (CPU and GPU)."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Query rows of the pass [Q], pool rows of their keys [K], and the mask [Q, K]."""

    queries: NDArray[np.int64]
    keys: NDArray[np.int64]
    mask: NDArray[np.bool_]


def canvas_rows(blocks: Sequence[BlockSpan]) -> NDArray[np.int64]:
    """Rows of the blocks' canvases, in order."""
    first = np.array([block.canvas for block in blocks], np.int64)
    lengths = np.array([block.stop for block in blocks], np.int64) - first
    before = np.cumsum(lengths) - lengths
    rows: NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(first - before, lengths)
    return rows


def slot_rows(blocks: Sequence[BlockSpan]) -> NDArray[np.int64]:
    """Rows of the blocks' slots: block by block, replica by replica."""
    slots = [np.zeros(0, np.int32)]
    starts: list[int] = []
    for span in blocks:
        replicas, width = span.block.canvases.shape
        slots += [span.block.slots] * replicas
        starts += range(span.canvas, span.canvas + replicas * width, width)
    counts = [len(part) for part in slots[1:]]
    return np.concatenate(slots, dtype=np.int64) + np.repeat(np.array(starts, np.int64), counts)


def cut(
    packed: PackedPass, window: int | None, *, blocks: Sequence[BlockSpan], wanted: NDArray[np.bool_]
) -> list[Tile]:
    """Tiles that cover the wanted rows [N] of the states and of `blocks`, at attention window `window`."""
    tiles = []
    for queries, keys in _groups(packed, window, blocks):
        chosen = queries[wanted[queries]]
        if len(chosen):
            tiles.append(Tile(chosen, keys.index(packed), visible(packed, chosen, keys, window)))
    return tiles


def _groups(
    packed: PackedPass, window: int | None, blocks: Sequence[BlockSpan]
) -> Iterator[tuple[NDArray[np.int64], KeyRows]]:
    for number, state in enumerate(packed.states):
        yield from _state_groups(state, window)
        mine = [block for block in blocks if block.item == number]
        while mine:
            count = _fitting(mine)
            group, mine = mine[:count], mine[count:]
            # Rows between the group's blocks (others whose answer is complete) are keys that nothing here sees.
            first, last = group[0].row, group[-1].stop
            low = 0 if window is None else max(0, state.stop - window + 1)
            yield (
                _join([np.arange(block.row, block.stop) for block in group]),
                KeyRows(state, low, state.stop, first, last),
            )


def _state_groups(state: StateSpan, window: int | None) -> Iterator[tuple[NDArray[np.int64], KeyRows]]:
    for begin in range(state.start, state.stop, TILE_ROWS):
        end = min(begin + TILE_ROWS, state.stop)
        low = 0 if window is None else max(0, begin - window + 1)
        rows = np.arange(begin, end) - state.start + state.row
        yield rows, KeyRows(state, low, end, 0, 0)


def _fitting(blocks: Sequence[BlockSpan]) -> int:
    """How many leading blocks make a tile: at least one, then while their rows (gaps included) stay within bounds."""
    count = 1
    while count < len(blocks) and blocks[count].stop - blocks[0].row <= TILE_ROWS:
        count += 1
    return count


def _join(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)
