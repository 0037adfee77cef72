"""Linear maps of rows, in whichever format the weight is kept."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.nn import functional

from openjev_server.engine.fused.experts import accumulate_int4
from openjev_server.engine.fused.float8 import quantise_rows
from openjev_server.engine.matrix import INT4_GROUP, Float8Matrix, Int4Matrix, Matrix

__all__ = ["project"]


def project(rows: torch.Tensor, *matrices: Matrix) -> list[torch.Tensor]:
    """[n, in] times each of the matrices [out, in]. FP8 activations are quantised once for all of them."""
    quantised: tuple[torch.Tensor, torch.Tensor] | None = None
    results = []
    for matrix in matrices:
        if isinstance(matrix, Float8Matrix):
            if quantised is None:
                quantised = quantise_rows(rows)
            values, scale = quantised
            results.append(
                torch._scaled_mm(
                    values,
                    matrix.values.t(),
                    scale_a=scale[:, None],
                    scale_b=matrix.scale[None, :],
                    out_dtype=rows.dtype,
                    use_fast_accum=True,
                )
            )
        elif isinstance(matrix, Int4Matrix):
            results.append(_int4(rows, matrix))
        else:
            assert isinstance(matrix, torch.Tensor), "8-bit integers are multiplied on a CPU only"
            results.append(functional.linear(rows, matrix))
    return results


def _int4(rows: torch.Tensor, matrix: Int4Matrix) -> torch.Tensor:
    n, width = rows.shape
    columns = matrix.packed.shape[0]
    out = torch.empty(n, columns, dtype=rows.dtype, device=rows.device)
    block = 16 if n <= 16 else 64 if n <= 1024 else 128
    _multiply_int4[(triton.cdiv(n, block), triton.cdiv(columns, 64))](
        rows, matrix.packed, matrix.scale, matrix.low, out, n,
        COLUMNS=columns, WIDTH=width, ROWS=block, ACROSS=64, GROUP=INT4_GROUP, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


@triton.jit
def _multiply_int4(
    rows, packed, scales, lows, out, n,
    COLUMNS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, ACROSS: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * ACROSS + tl.arange(0, ACROSS)
    inside, ok = row < n, column < COLUMNS
    half = tl.arange(0, GROUP // 2)
    from_row = rows + row[:, None].to(tl.int64) * WIDTH
    sums = tl.zeros([ROWS, ACROSS], tl.float32)
    for start in range(0, WIDTH, GROUP):
        x_low = tl.load(from_row + (start + half)[None, :], mask=inside[:, None], other=0.0)
        x_high = tl.load(from_row + (start + GROUP // 2 + half)[None, :], mask=inside[:, None], other=0.0)
        sums = accumulate_int4(x_low, x_high, packed, scales, lows, column, start, ok, sums, WIDTH, GROUP)
    to = out + row[:, None].to(tl.int64) * COLUMNS + column[None, :]
    tl.store(to, sums.to(out.dtype.element_ty), mask=inside[:, None] & ok[None, :])
