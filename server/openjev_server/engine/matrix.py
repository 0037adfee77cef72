"""The weight of a linear map in the format it is computed from: plain, FP8 (e4m3), 8-bit integers, or 4 bits.

All hold [..., out, in]; leading axes are experts. Plain ones may be arranged for a CPU (`prepacked`). FP8 multiplies in
FP8 where the device can, 8-bit integers multiply as such on a CPU (`int8`); 4 bits are a storage format, multiplied in
the activations' dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from openjev_server.engine.int8 import Int8Matrix, Int8Rows, pack, to_levels
from openjev_server.engine.prepacked import PrepackedMatrix

__all__ = [
    "INT4_GROUP",
    "Float8Matrix",
    "Int4Matrix",
    "Matrix",
    "dequantised",
    "expert",
    "linear",
    "stored_bytes",
    "to_float8",
    "to_int4",
    "to_int8",
]

FLOAT8_MAX = 448.0
"""Largest finite value of float8_e4m3fn."""
INT4_GROUP = 64
"""Inputs that share a scale and a lowest value: 0.5 bits a weight on top of the 4. 64 divides every input width of
DiffusionGemma-26B-A4B (2816, 2112, 704, 4096, 8192)."""


@dataclass(frozen=True, slots=True)
class Float8Matrix:
    """weight[..., o, i] = values[..., o, i] * scale[..., o]."""

    values: torch.Tensor
    """float8_e4m3fn [..., out, in]"""
    scale: torch.Tensor
    """float32 [..., out]"""


@dataclass(frozen=True, slots=True)
class Int4Matrix:
    """weight = level * scale + low, the levels 0..15 of a group of `INT4_GROUP` inputs sharing scale and low.

    Byte j of a group holds input j in its low nibble and input j + 32 in its high one: both halves are then
    consecutive inputs, which a kernel multiplies without interleaving.
    """

    packed: torch.Tensor
    """uint8 [..., out, in / 2]"""
    scale: torch.Tensor
    """[..., out, in / INT4_GROUP], float32 or bfloat16"""
    low: torch.Tensor
    """As `scale`."""


Matrix = torch.Tensor | PrepackedMatrix | Float8Matrix | Int4Matrix | Int8Matrix


def to_float8(weight: torch.Tensor) -> Float8Matrix:
    """Quantises [..., out, in] with one scale per output row: its largest magnitude becomes 448."""
    scale = weight.float().abs().amax(-1).div_(FLOAT8_MAX).clamp_min_(torch.finfo(torch.float32).tiny)
    return Float8Matrix((weight.float() / scale[..., None]).to(torch.float8_e4m3fn), scale)


def to_int4(weight: torch.Tensor) -> Int4Matrix:
    """Quantises [..., out, in]. Raises ValueError when `in` is not a multiple of `INT4_GROUP`."""
    if weight.shape[-1] % INT4_GROUP:
        raise ValueError(f"{weight.shape[-1]} inputs are not a multiple of {INT4_GROUP}")
    kept = torch.bfloat16 if weight.dtype == torch.bfloat16 else torch.float32
    groups = weight.float().reshape(*weight.shape[:-1], -1, INT4_GROUP)
    low = groups.amin(-1).to(kept)
    scale = ((groups.amax(-1) - low.float()) / 15).clamp_min(torch.finfo(torch.bfloat16).tiny).to(kept)
    levels = ((groups - low.float()[..., None]) / scale.float()[..., None]).round_().clamp_(0, 15).to(torch.uint8)
    first, second = levels.chunk(2, dim=-1)
    return Int4Matrix((first | (second << 4)).flatten(-2).contiguous(), scale, low)


def to_int8(weight: torch.Tensor) -> Int8Matrix:
    """Quantises [out, in] or [experts, out, in]. Raises RuntimeError where the CPU has no 8-bit products."""
    return pack(*to_levels(weight))


def dequantised(matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    """The plain weight [..., out, in]."""
    if isinstance(matrix, torch.Tensor):
        return matrix.to(dtype)
    if isinstance(matrix, PrepackedMatrix):
        return matrix.plain().to(dtype)
    if isinstance(matrix, Float8Matrix):
        return (matrix.values.float() * matrix.scale[..., None]).to(dtype)
    if isinstance(matrix, Int8Matrix):
        return (matrix.levels() * matrix.scale[..., None]).to(dtype)
    halves = matrix.packed.reshape(*matrix.packed.shape[:-1], -1, INT4_GROUP // 2)
    levels = torch.cat((halves & 15, halves >> 4), dim=-1).float()
    return (levels * matrix.scale.float()[..., None] + matrix.low.float()[..., None]).flatten(-2).to(dtype)


def linear(x: torch.Tensor, matrix: Matrix) -> torch.Tensor:
    """[n, in] -> [n, out] in plain PyTorch. FP8 and 4-bit weights are dequantised first: the reference for faster
    paths; 8-bit integers are multiplied as such."""
    if isinstance(matrix, PrepackedMatrix):
        return matrix.of(x)
    if isinstance(matrix, Int8Matrix):
        return Int8Rows.of(x).times(matrix).to(x.dtype)
    return functional.linear(x, dequantised(matrix, x.dtype))


def expert(matrix: Matrix, index: int) -> Matrix:
    """One expert's [out, in] of [experts, out, in]."""
    if isinstance(matrix, torch.Tensor):
        return matrix[index]
    if isinstance(matrix, PrepackedMatrix):
        return PrepackedMatrix((matrix.packed[index],), matrix.shape[1:])
    if isinstance(matrix, Float8Matrix):
        return Float8Matrix(matrix.values[index], matrix.scale[index])
    if isinstance(matrix, Int8Matrix):
        return Int8Matrix((matrix.packed[index],), matrix.scale[index])
    return Int4Matrix(matrix.packed[index], matrix.scale[index], matrix.low[index])


def stored_bytes(matrix: Matrix) -> int:
    """Bytes on the device, scales included."""
    if isinstance(matrix, torch.Tensor):
        parts: tuple[torch.Tensor, ...] = (matrix,)
    elif isinstance(matrix, PrepackedMatrix):
        parts = matrix.packed
    elif isinstance(matrix, Float8Matrix):
        parts = (matrix.values, matrix.scale)
    elif isinstance(matrix, Int8Matrix):
        parts = (*matrix.packed, matrix.scale)
    else:
        parts = (matrix.packed, matrix.scale, matrix.low)
    return sum(part.numel() * part.element_size() for part in parts)
