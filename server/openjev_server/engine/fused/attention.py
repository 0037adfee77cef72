"""Attention of packed rows to the key pool: one kernel, no mask in memory.

A tile is a run of query rows of one request. Its keys are a range of state positions, found through the state's row
table, and a range of the pass's own rows. Query heads that share a key head are stacked into the rows of one matrix
product, so that a tile of few rows still fills the tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

__all__ = ["FULL_WINDOW", "TILE_FIELDS", "PassColumns", "attend", "tile_rows"]

TILE_FIELDS = 8
"""int32 fields of a tile: first query, queries, table offset, low, high, first own row, last own row, unused."""
FULL_WINDOW = 1 << 30


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """How the kernel is cut for a head_dim."""

    stacked: int
    """Rows of a tile times the heads stacked on them."""
    parts: int
    """Programs that share a tile's output columns; each computes all of the scores."""
    keys: int
    warps: int
    stages: int


def attention_shape(head_dim: int) -> AttentionShape:
    """Measured on an H200 (`benchmarks/kernels.py`)."""
    if head_dim <= 256:
        return AttentionShape(stacked=128, parts=1, keys=64, warps=8, stages=2)
    return AttentionShape(stacked=128, parts=2, keys=32, warps=8, stages=2)


@dataclass(frozen=True, slots=True)
class PassColumns:
    """int32 columns over the rows of a pass, shape [N] each, and the states' row tables."""

    anchor: torch.Tensor
    """Position of an encoder row; for a canvas row how many prompt tokens precede the canvas."""
    position: torch.Tensor
    segment: torch.Tensor
    copy: torch.Tensor
    """-1 for an encoder row, else the number of its canvas replica."""
    store: torch.Tensor
    """Row of the key pool."""
    table: torch.Tensor
    """Pool rows of the states' positions, one state after the other."""


def tile_rows(heads: int, kv_heads: int, head_dim: int) -> int:
    """Query rows a tile may hold: the accumulator [rows * heads/kv_heads, head_dim] must fit the registers."""
    return int(max(1, attention_shape(head_dim).stacked // triton.next_power_of_2(heads // kv_heads)))


def attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    rows: torch.Tensor,
    columns: PassColumns,
    tiles: torch.Tensor,
    window: int | None,
    *,
    padded: bool = False,
) -> torch.Tensor:
    """[n, heads, head_dim] queries of the pass rows `rows` [n] -> [n, heads, head_dim]; the score scale is 1.

    `keys` and `values` are the layer's pool [capacity, kv heads, head_dim], `tiles` [t, TILE_FIELDS] int32 cover the
    queries; a tile of 0 queries is skipped. `padded` says that no tile covers some queries, which come out as 0.
    """
    _, heads, head_dim = queries.shape
    kv_heads = keys.shape[1]
    mixed = torch.zeros_like(queries) if padded else torch.empty_like(queries)
    shape = attention_shape(head_dim)
    group = heads // kv_heads
    _attend[(len(tiles), kv_heads, shape.parts)](
        queries,
        keys,
        values,
        mixed,
        rows,
        columns.anchor,
        columns.position,
        columns.segment,
        columns.copy,
        columns.store,
        columns.table,
        tiles,
        WINDOW=FULL_WINDOW if window is None else window,
        HEADS=heads,
        KV_HEADS=kv_heads,
        GROUP=group,
        STACK=triton.next_power_of_2(group),
        D=head_dim,
        ROWS=tile_rows(heads, kv_heads, head_dim),
        FIELDS=TILE_FIELDS,
        PARTS=shape.parts,
        KEYS=shape.keys,
        num_warps=shape.warps,
        num_stages=shape.stages,
    )
    return mixed


@triton.jit
def _attend(
    queries,
    keys,
    values,
    mixed,
    rows,
    anchors,
    positions,
    segments,
    copies,
    stores,
    tables,
    tiles,
    WINDOW: tl.constexpr,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    STACK: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
    FIELDS: tl.constexpr,
    PARTS: tl.constexpr,
    KEYS: tl.constexpr,
):
    tile = tiles + tl.program_id(0) * FIELDS
    count = tl.load(tile + 1)
    if count == 0:
        return
    kv_head = tl.program_id(1)
    first = tl.load(tile)
    table = tables + tl.load(tile + 2)
    low = tl.load(tile + 3)
    high = tl.load(tile + 4)
    own_first = tl.load(tile + 5)
    own_last = tl.load(tile + 6)

    stacked = tl.arange(0, ROWS * STACK)
    row = stacked // STACK
    valid = (row < count) & (stacked % STACK < GROUP)
    place = tl.load(rows + first + row, mask=valid, other=0)
    anchor = tl.load(anchors + place)
    segment = tl.load(segments + place)
    copy = tl.load(copies + place)
    dims = tl.arange(0, D)
    head = kv_head * GROUP + stacked % STACK
    offsets = ((first + row).to(tl.int64) * HEADS + head)[:, None] * D + dims[None, :]
    query = tl.load(queries + offsets, mask=valid[:, None], other=0.0)
    across = tl.program_id(2) * (D // PARTS) + tl.arange(0, D // PARTS)

    best = tl.full([ROWS * STACK], -float("inf"), tl.float32)
    total = tl.zeros([ROWS * STACK], tl.float32)
    sums = tl.zeros([ROWS * STACK, D // PARTS], tl.float32)
    for start in range(low, high, KEYS):
        index = start + tl.arange(0, KEYS)
        inside = index < high
        at = (tl.load(table + index, mask=inside, other=0).to(tl.int64) * KV_HEADS + kv_head) * D
        key = tl.load(keys + at[None, :] + dims[:, None], mask=inside[None, :], other=0.0)
        value = tl.load(values + at[:, None] + across[None, :], mask=inside[:, None], other=0.0)
        seen = inside[None, :] & (index[None, :] <= anchor[:, None]) & (index[None, :] > anchor[:, None] - WINDOW)
        best, total, sums = _fold(query, key, value, seen, best, total, sums)
    for start in range(own_first, own_last, KEYS):
        index = start + tl.arange(0, KEYS)
        inside = index < own_last
        at = (tl.load(stores + index, mask=inside, other=0).to(tl.int64) * KV_HEADS + kv_head) * D
        key = tl.load(keys + at[None, :] + dims[:, None], mask=inside[None, :], other=0.0)
        value = tl.load(values + at[:, None] + across[None, :], mask=inside[:, None], other=0.0)
        its_position = tl.load(positions + index, mask=inside, other=0)
        its_segment = tl.load(segments + index, mask=inside, other=-1)
        its_copy = tl.load(copies + index, mask=inside, other=-2)
        prompt = (its_copy[None, :] == -1) & (its_segment[None, :] == segment[:, None])
        prompt = prompt & (its_position[None, :] <= anchor[:, None])
        prompt = prompt & (its_position[None, :] > anchor[:, None] - WINDOW)
        canvas = (copy[:, None] >= 0) & (its_copy[None, :] == copy[:, None])
        best, total, sums = _fold(query, key, value, prompt | canvas, best, total, sums)
    # A row of the padding has seen nothing: it gets 0, not 0 / 0.
    result = sums / tl.where(total == 0.0, 1.0, total)[:, None]
    to = ((first + row).to(tl.int64) * HEADS + head)[:, None] * D + across[None, :]
    tl.store(mixed + to, result.to(mixed.dtype.element_ty), mask=valid[:, None])


@triton.jit
def _fold(query, key, value, seen, best, total, sums):
    """One step of the running softmax over a block of keys."""
    scores = tl.where(seen, tl.dot(query, key, input_precision="ieee") * 1.4426950408889634, -float("inf"))
    newest = tl.maximum(best, tl.max(scores, 1))
    reference = tl.where(newest == -float("inf"), 0.0, newest)
    weights = tl.exp2(scores - reference[:, None])
    shrink = tl.exp2(best - reference)
    total = total * shrink + tl.sum(weights, 1)
    sums = sums * shrink[:, None] + tl.dot(weights.to(value.dtype), value, input_precision="ieee")
    return newest, total, sums
