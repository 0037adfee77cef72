"""Rows in FP8 (e4m3) with one scale each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["quantise_rows"]


def quantise_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[n, width] -> float8_e4m3fn [n, width] and float32 scales [n]: a row's largest magnitude becomes 448."""
    n, width = rows.shape
    values = torch.empty(n, width, dtype=torch.float8_e4m3fn, device=rows.device)
    scale = torch.empty(n, dtype=torch.float32, device=rows.device)
    _quantise[(n,)](rows, values, scale, WIDTH=width, BLOCK=triton.next_power_of_2(width), num_warps=4)
    return values, scale


@triton.jit
def _quantise(rows, values, scales, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    x = tl.load(rows + row * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), 0) / 448.0, 1e-30)
    tl.store(scales + row, scale)
    tl.store(values + row * WIDTH + column, (x / scale).to(values.dtype.element_ty), mask=inside)
