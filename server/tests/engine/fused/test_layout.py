"""The buffer of a pass, pinned to the byte, and its tiles: every key that a row sees, and few more."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from openjev_server.engine.fused.attention import TILE_FIELDS
from openjev_server.engine.fused.layout import TileRows, columns_of, fill
from openjev_server.engine.packing import BlockSpan, PackedPass, PassBlock, PassItem, pack
from openjev_server.engine.protocol import CanvasBlock
from openjev_server.engine.tiles import canvas_rows, slot_rows


def random_block(rng: np.random.Generator, longest: int) -> CanvasBlock:
    suffix, width, replicas = (int(rng.integers(low, high)) for low, high in ((0, longest), (1, 40), (1, 4)))
    slots = int(rng.integers(1, min(width, 4) + 1))
    return CanvasBlock(
        rng.integers(0, 99, suffix).astype(np.int32),
        rng.integers(0, 99, (replicas, width)).astype(np.int32),
        np.sort(rng.choice(width, slots, replace=False)).astype(np.int32),
        np.arange(2 * slots, dtype=np.int32),
        np.arange(0, 2 * slots + 1, 2, dtype=np.int32),
    )


def random_pass(rng: np.random.Generator, longest: int = 9) -> PackedPass:
    """Up to four states, some in part, of which some are in the pool already, and up to five blocks about each."""
    items = []
    for ticket in range(int(rng.integers(1, 5))):
        length = int(rng.integers(1, 300))
        start = int(rng.integers(0, length + 1))
        stop = length if rng.random() < 0.8 else int(rng.integers(start, length + 1))
        count = int(rng.integers(0, 6)) if stop == length else 0
        blocks = tuple(PassBlock(ticket, number, random_block(rng, longest)) for number in range(count))
        state = rng.integers(0, 99, length).astype(np.int32)
        items.append(PassItem(state, rng.integers(0, 9999, stop), start, stop, blocks))
    rows = sum(block.rows for item in items for block in item.blocks)
    return pack(items, rng.integers(0, 9999, rows))


def buffer(packed: PackedPass, blocks: list[BlockSpan], on_own_token: np.ndarray | None) -> bytes:
    chosen = np.arange(packed.rows) if on_own_token is None else canvas_rows(blocks)
    columns = columns_of(
        packed,
        blocks,
        chosen=chosen,
        wanted=slot_rows(blocks),
        on_own_token=on_own_token,
        window=64,
        tiles=TileRows(32, 8),
    )
    values = np.zeros(columns.sizes.total, np.int32)
    fill(values, columns.sizes, columns, unread_row=7)
    return values.tobytes()


def test_passes_are_laid_out_as_ever() -> None:
    rng = np.random.default_rng(5)
    seen = hashlib.sha256()
    for _ in range(100):
        packed = random_pass(rng)
        for column in (packed.tokens, packed.positions, packed.anchor, packed.segment, packed.copy, packed.store):
            seen.update(column.tobytes() + str(column.dtype).encode())
        states = [(state.start, state.stop, state.row) for state in packed.states]
        seen.update(repr((states, [(b.item, b.row, b.canvas, b.stop) for b in packed.blocks])).encode())
        seen.update(buffer(packed, list(packed.blocks), None))
        going_on = [block for block in packed.blocks if rng.random() < 0.6]
        if going_on:
            rows = sum(block.stop - block.canvas for block in going_on)
            seen.update(buffer(packed, going_on, rng.random(rows) < 0.5))
    assert seen.hexdigest()[:16] == "5595ec6c5d9b5e9e"


def seen_by(packed: PackedPass, row: int, window: int | None) -> tuple[set[int], set[int]]:
    """State positions and pass rows whose keys a block's row sees, by the model's definition."""
    anchor, segment, copy = (int(values[row]) for values in (packed.anchor, packed.segment, packed.copy))
    furthest = -1 if window is None else anchor - window
    block = packed.blocks[segment - 1]
    state = {at for at in range(packed.states[block.item].stop) if furthest < at <= anchor}
    own = {
        at
        for at in range(block.row, block.stop)
        if (packed.copy[at] == copy and copy >= 0)
        or (packed.copy[at] == -1 and furthest < packed.positions[at] <= anchor)
    }
    return state, own


@pytest.mark.parametrize("window", [None, 5, 64])
def test_tiles_hold_what_their_rows_see(window: int | None) -> None:
    rng = np.random.default_rng(6)
    wasted = 0
    for _ in range(30):
        packed = random_pass(rng, longest=90)
        blocks = list(packed.blocks)
        chosen = np.arange(packed.rows)
        columns = columns_of(
            packed,
            blocks,
            chosen=chosen,
            wanted=slot_rows(blocks),
            on_own_token=None,
            window=window or 10**6,
            tiles=TileRows(8, 8),
        )
        tiles = (columns.full if window is None else columns.sliding).reshape(-1, TILE_FIELDS)
        for first, count, _, low, high, own_first, own_last, _ in tiles.tolist():
            rows = [row for row in range(first, first + count) if packed.segment[row]]
            seen = [seen_by(packed, row, window) for row in rows]
            state = set().union(*(part[0] for part in seen)) if seen else set()
            own = set().union(*(part[1] for part in seen)) if seen else set()
            assert not rows or state <= set(range(low, high))
            assert own <= set(range(own_first, own_last))
            if len({int(packed.segment[row]) for row in rows}) == 1 and all(packed.copy[row] < 0 for row in rows):
                wasted += high - low - len(state) + own_last - own_first - len(own)
    assert wasted == 0, "a tile of one question's prompt reads no key in vain"
