"""The experts' gated MLPs as two grouped matrix products over the rows that each expert was given.

The first gathers its rows through the routing and applies the activation before it writes; the second multiplies by
the routing share and writes every entry to its own place, so that nothing has to be sorted back. Weights may be plain,
FP8 (the rows are then quantised before either product, a scale each) or 4 bits (dequantised in registers).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from openjev_server.engine.fused.float8 import quantise_rows
from openjev_server.engine.fused.routing import Routing
from openjev_server.engine.matrix import INT4_GROUP, Float8Matrix, Int4Matrix, Matrix

__all__ = ["FLOAT8", "INT4", "PLAIN", "TileShape", "accumulate_int4", "experts", "tile_shapes"]

PLAIN, FLOAT8, INT4 = 0, 1, 2


@dataclass(frozen=True, slots=True)
class TileShape:
    """How a grouped product is cut: rows, columns and depth of a tile, warps and pipeline stages."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def tile_shapes(entries: int, experts: int, form: int = PLAIN) -> tuple[TileShape, TileShape]:
    """Tiles of the first and of the second product.

    Few entries an expert are bound by reading the weights, many by arithmetic. Measured on an H200 at the released
    sizes (`benchmarks/kernels.py`): FP8 wants twice the depth, as it halves the bytes.
    """
    average = entries / experts
    depth = 128 if form == FLOAT8 else 64
    if average <= 16:
        depth, stages = (64, 4) if form == INT4 else (128, 3)
        return TileShape(16, 64, depth, 4, stages), TileShape(16, 128, depth, 4, stages)
    if average <= 96:
        return TileShape(64, 64, depth, 4, 3), TileShape(64, 128, depth, 4, 3)
    stages = 4 if form == INT4 else 3
    return TileShape(128, 64, depth, 8, stages), TileShape(128, 128, depth, 8, stages)


def experts(
    rows: torch.Tensor,
    routing: Routing,
    gate_up: Matrix,
    down: Matrix,
    *,
    k: int,
    silu: bool,
    shapes: tuple[TileShape, TileShape] | None = None,
) -> torch.Tensor:
    """[n, hidden] -> [n * k, hidden]: every entry's expert output times its share; summing the k is left to the next
    kernel. `gate_up` is [experts, 2 * inner, hidden], `down` [experts, hidden, inner]."""
    n, hidden = rows.shape
    first, second = _Parts.of(gate_up), _Parts.of(down)
    count, inner = first.values.shape[0], first.values.shape[1] // 2
    one, two = shapes or tile_shapes(n * k, count, first.format)
    tiles = min(triton.cdiv(n * k, one.rows) + count, n * k)
    entered, scale = quantise_rows(rows) if first.format == FLOAT8 else (rows, rows)
    between = torch.empty(n * k, inner, dtype=rows.dtype, device=rows.device)
    _gate_up[(tiles * triton.cdiv(inner, one.columns),)](
        entered,
        scale,
        first.values,
        first.scale,
        first.low,
        between,
        routing.entries,
        routing.counts,
        CHOICES=k,
        HIDDEN=hidden,
        INNER=inner,
        EXPERTS=count,
        FORMAT=first.format,
        SILU=silu,
        ROWS=one.rows,
        COLUMNS=one.columns,
        DEPTH=one.depth,
        GROUP=INT4_GROUP,
        num_warps=one.warps,
        num_stages=one.stages,
    )
    entered, scale = quantise_rows(between) if second.format == FLOAT8 else (between, between)
    tiles = min(triton.cdiv(n * k, two.rows) + count, n * k)
    out = torch.empty(n * k, hidden, dtype=rows.dtype, device=rows.device)
    _down[(tiles * triton.cdiv(hidden, two.columns),)](
        entered,
        scale,
        second.values,
        second.scale,
        second.low,
        out,
        routing.shares,
        routing.entries,
        routing.counts,
        HIDDEN=hidden,
        INNER=inner,
        EXPERTS=count,
        FORMAT=second.format,
        ROWS=two.rows,
        COLUMNS=two.columns,
        DEPTH=two.depth,
        GROUP=INT4_GROUP,
        num_warps=two.warps,
        num_stages=two.stages,
    )
    return out


@dataclass(frozen=True, slots=True)
class _Parts:
    format: int
    values: torch.Tensor
    scale: torch.Tensor
    low: torch.Tensor

    @staticmethod
    def of(matrix: Matrix) -> _Parts:
        if isinstance(matrix, Float8Matrix):
            return _Parts(FLOAT8, matrix.values, matrix.scale, matrix.scale)
        if isinstance(matrix, Int4Matrix):
            return _Parts(INT4, matrix.packed, matrix.scale, matrix.low)
        assert isinstance(matrix, torch.Tensor), "8-bit integers are multiplied on a CPU only"
        return _Parts(PLAIN, matrix, matrix, matrix)


@triton.jit
def _tile(counts, EXPERTS: tl.constexpr, ROWS: tl.constexpr, number):
    """Tile `number` of all experts' tiles: its expert, its first entry, and one past the expert's last entry."""
    index = tl.arange(0, EXPERTS)
    count = tl.load(counts + index)
    tiles = (count + ROWS - 1) // ROWS
    ends = tl.cumsum(tiles, 0)
    expert = tl.sum((ends <= number).to(tl.int32), 0)
    mine = index == expert
    start = tl.sum(tl.where(index < expert, count, 0), 0)
    within = number - tl.sum(tl.where(mine, ends - tiles, 0), 0)
    return expert, start + within * ROWS, start + tl.sum(tl.where(mine, count, 0), 0)


@triton.jit
def _rows(from_row, deep, inside, WIDTH: tl.constexpr, DEPTH: tl.constexpr):
    if WIDTH % DEPTH == 0:
        return tl.load(from_row + deep[None, :], mask=inside[:, None], other=0.0)
    return tl.load(from_row + deep[None, :], mask=inside[:, None] & (deep[None, :] < WIDTH), other=0.0)


@triton.jit
def _plain(x, weights, row, deep, ok, sums, DEPTH: tl.constexpr, WIDTH: tl.constexpr):
    at = row[None, :].to(tl.int64) * WIDTH + deep[:, None]
    # A mask on the depth costs address arithmetic in the innermost loop; the released widths need none.
    if WIDTH % DEPTH == 0:
        block = tl.load(weights + at, mask=ok[None, :], other=0.0)
    else:
        block = tl.load(weights + at, mask=(deep[:, None] < WIDTH) & ok[None, :], other=0.0)
    return tl.dot(x, block, sums, input_precision="ieee")


@triton.jit
def accumulate_int4(
    x_low, x_high, weights, scales, lows, row, start, ok, sums, WIDTH: tl.constexpr, GROUP: tl.constexpr
):
    byte = start // 2 + tl.arange(0, GROUP // 2)
    at = row[None, :].to(tl.int64) * (WIDTH // 2) + byte[:, None]
    packed = tl.load(weights + at, mask=ok[None, :], other=0)
    group = row.to(tl.int64) * (WIDTH // GROUP) + start // GROUP
    scale = tl.load(scales + group, mask=ok, other=0.0).to(tl.float32)[None, :]
    low = tl.load(lows + group, mask=ok, other=0.0).to(tl.float32)[None, :]
    first = ((packed & 15).to(tl.float32) * scale + low).to(x_low.dtype)
    second = ((packed >> 4).to(tl.float32) * scale + low).to(x_low.dtype)
    sums = tl.dot(x_low, first, sums, input_precision="ieee")
    return tl.dot(x_high, second, sums, input_precision="ieee")


@triton.jit
def _gate_up(
    rows,
    row_scales,
    weights,
    scales,
    lows,
    between,
    entries,
    counts,
    CHOICES: tl.constexpr,
    HIDDEN: tl.constexpr,
    INNER: tl.constexpr,
    EXPERTS: tl.constexpr,
    FORMAT: tl.constexpr,
    SILU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    across: tl.constexpr = (INNER + COLUMNS - 1) // COLUMNS
    expert, first, last = _tile(counts, EXPERTS, ROWS, tl.program_id(0) // across)
    if expert >= EXPERTS:
        return
    place = first + tl.arange(0, ROWS)
    inside = place < last
    row = tl.load(entries + place, mask=inside, other=0) // CHOICES
    column = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)
    ok = column < INNER
    gate_row = expert * 2 * INNER + column
    up_row = gate_row + INNER
    gate = tl.zeros([ROWS, COLUMNS], tl.float32)
    up = tl.zeros([ROWS, COLUMNS], tl.float32)
    from_row = rows + row[:, None].to(tl.int64) * HIDDEN
    if FORMAT == 2:
        half = tl.arange(0, GROUP // 2)
        for start in range(0, HIDDEN, GROUP):
            x_low = tl.load(from_row + (start + half)[None, :], mask=inside[:, None], other=0.0)
            x_high = tl.load(from_row + (start + GROUP // 2 + half)[None, :], mask=inside[:, None], other=0.0)
            gate = accumulate_int4(x_low, x_high, weights, scales, lows, gate_row, start, ok, gate, HIDDEN, GROUP)
            up = accumulate_int4(x_low, x_high, weights, scales, lows, up_row, start, ok, up, HIDDEN, GROUP)
    else:
        for start in range(0, HIDDEN, DEPTH):
            deep = start + tl.arange(0, DEPTH)
            x = _rows(from_row, deep, inside, HIDDEN, DEPTH)
            gate = _plain(x, weights, gate_row, deep, ok, gate, DEPTH, HIDDEN)
            up = _plain(x, weights, up_row, deep, ok, up, DEPTH, HIDDEN)
    if FORMAT == 1:
        of_row = tl.load(row_scales + row, mask=inside, other=0.0)[:, None]
        gate = gate * of_row * tl.load(scales + gate_row, mask=ok, other=0.0)[None, :]
        up = up * of_row * tl.load(scales + up_row, mask=ok, other=0.0)[None, :]
    if SILU:
        acted = gate / (1.0 + tl.exp(-gate))
    else:
        # gelu, tanh form: x * sigmoid(2 u), as tanh(u) = 2 sigmoid(2 u) - 1
        acted = gate / (1.0 + tl.exp(-1.5957691216057308 * (gate + 0.044715 * gate * gate * gate)))
    result = acted * up
    to = place[:, None].to(tl.int64) * INNER + column[None, :]
    mask = inside[:, None] & ok[None, :]
    tl.store(between + to, result.to(between.dtype.element_ty), mask=mask)


@triton.jit
def _down(
    between,
    between_scales,
    weights,
    scales,
    lows,
    out,
    shares,
    entries,
    counts,
    HIDDEN: tl.constexpr,
    INNER: tl.constexpr,
    EXPERTS: tl.constexpr,
    FORMAT: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    across: tl.constexpr = (HIDDEN + COLUMNS - 1) // COLUMNS
    expert, first, last = _tile(counts, EXPERTS, ROWS, tl.program_id(0) // across)
    if expert >= EXPERTS:
        return
    place = first + tl.arange(0, ROWS)
    inside = place < last
    column = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)
    ok = column < HIDDEN
    row = expert * HIDDEN + column
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    from_row = between + place[:, None].to(tl.int64) * INNER
    if FORMAT == 2:
        half = tl.arange(0, GROUP // 2)
        for start in range(0, INNER, GROUP):
            x_low = tl.load(from_row + (start + half)[None, :], mask=inside[:, None], other=0.0)
            x_high = tl.load(from_row + (start + GROUP // 2 + half)[None, :], mask=inside[:, None], other=0.0)
            sums = accumulate_int4(x_low, x_high, weights, scales, lows, row, start, ok, sums, INNER, GROUP)
    else:
        for start in range(0, INNER, DEPTH):
            deep = start + tl.arange(0, DEPTH)
            x = _rows(from_row, deep, inside, INNER, DEPTH)
            sums = _plain(x, weights, row, deep, ok, sums, DEPTH, INNER)
    if FORMAT == 1:
        sums = sums * tl.load(between_scales + place, mask=inside, other=0.0)[:, None]
        sums = sums * tl.load(scales + row, mask=ok, other=0.0)[None, :]
    entry = tl.load(entries + place, mask=inside, other=0)
    share = tl.load(shares + entry, mask=inside, other=0.0)
    to = entry[:, None].to(tl.int64) * HIDDEN + column[None, :]
    tl.store(out + to, (sums * share[:, None]).to(out.dtype.element_ty), mask=inside[:, None] & ok[None, :])
