"""The buffer of a pass, to the byte, as it was when blocks were laid out and cut one by one."""

from __future__ import annotations

import hashlib

import numpy as np
from openjev_server.engine.fused.layout import TileRows, columns_of, fill
from openjev_server.engine.packing import BlockSpan, PackedPass, PassBlock, PassItem, pack
from openjev_server.engine.protocol import CanvasBlock
from openjev_server.engine.tiles import canvas_rows, slot_rows


def random_block(rng: np.random.Generator) -> CanvasBlock:
    suffix, width, replicas = (int(rng.integers(low, high)) for low, high in ((0, 9), (1, 40), (1, 4)))
    slots = int(rng.integers(1, min(width, 4) + 1))
    return CanvasBlock(
        rng.integers(0, 99, suffix).astype(np.int32),
        rng.integers(0, 99, (replicas, width)).astype(np.int32),
        np.sort(rng.choice(width, slots, replace=False)).astype(np.int32),
        np.arange(2 * slots, dtype=np.int32),
        np.arange(0, 2 * slots + 1, 2, dtype=np.int32),
    )


def random_pass(rng: np.random.Generator) -> PackedPass:
    """Up to four states, some in part, of which some are in the pool already, and up to five blocks about each."""
    items = []
    for ticket in range(int(rng.integers(1, 5))):
        length = int(rng.integers(1, 300))
        start = int(rng.integers(0, length + 1))
        stop = length if rng.random() < 0.8 else int(rng.integers(start, length + 1))
        count = int(rng.integers(0, 6)) if stop == length else 0
        blocks = tuple(PassBlock(ticket, number, random_block(rng)) for number in range(count))
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
    assert seen.hexdigest()[:16] == "107e494dd813823b"
