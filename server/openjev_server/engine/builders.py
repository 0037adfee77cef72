"""Tensors on the device in the making: allocated in full, filled piece by piece, each in its format."""

from __future__ import annotations

from typing import Protocol

import torch

from openjev_server.engine.formats import WeightFormat
from openjev_server.engine.int8 import Int8Matrix, pack, to_levels
from openjev_server.engine.matrix import INT4_GROUP, Float8Matrix, Int4Matrix, Matrix, dequantised, to_float8, to_int4
from openjev_server.engine.prepacked import PrepackedMatrix, prepack
from openjev_server.engine.tensors import Shape

__all__ = ["Builder", "as_plain", "builder"]


class Builder(Protocol):
    """A tensor on the device, allocated in full and filled piece by piece."""

    def put(self, place: tuple[slice, ...], piece: Matrix) -> None: ...

    def finished(self) -> Matrix: ...


class _Plain:
    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype, *, may_keep: bool) -> None:
        self._shape, self._device, self._dtype = shape, device, dtype
        self._may_keep = may_keep
        self._tensor: torch.Tensor | None = None

    def put(self, place: tuple[slice, ...], piece: Matrix) -> None:
        plain = as_plain(piece)
        if self._tensor is None and self._may_keep and plain.shape == self._shape and plain.dtype == self._dtype:
            self._tensor = plain  # the whole tensor, already where it is wanted
            return
        if self._tensor is None:
            self._tensor = torch.empty(self._shape, device=self._device, dtype=self._dtype)
        self._tensor[place].copy_(plain)

    def finished(self) -> Matrix:
        assert self._tensor is not None
        return self._tensor


class _Prepacked(_Plain):
    def finished(self) -> PrepackedMatrix:
        plain, self._tensor = self._tensor, None  # at no moment are all matrices there twice
        assert plain is not None
        return prepack(plain)


class _Float8:
    def __init__(self, shape: Shape, device: torch.device) -> None:
        self._values = torch.empty(shape, device=device, dtype=torch.float8_e4m3fn)
        self._scale = torch.empty(shape[:-1], device=device, dtype=torch.float32)

    def put(self, place: tuple[slice, ...], piece: Matrix) -> None:
        quantised = piece if isinstance(piece, Float8Matrix) else to_float8(as_plain(piece))
        self._values[place].copy_(quantised.values)
        self._scale[place].copy_(quantised.scale)

    def finished(self) -> Float8Matrix:
        return Float8Matrix(self._values, self._scale)


class _Int4:
    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        self._dtype = dtype
        kept = torch.bfloat16 if dtype == torch.bfloat16 else torch.float32
        groups = (*shape[:-1], shape[-1] // INT4_GROUP)
        self._packed = torch.empty((*shape[:-1], shape[-1] // 2), device=device, dtype=torch.uint8)
        self._scale, self._low = (torch.empty(groups, device=device, dtype=kept) for _ in range(2))

    def put(self, place: tuple[slice, ...], piece: Matrix) -> None:
        quantised = to_int4(as_plain(piece).to(self._dtype))
        self._packed[place].copy_(quantised.packed)
        self._scale[place].copy_(quantised.scale)
        self._low[place].copy_(quantised.low)

    def finished(self) -> Int4Matrix:
        return Int4Matrix(self._packed, self._scale, self._low)


class _Int8:
    """A piece has whole rows, so it is quantised as it comes: the plain weight is never there in full."""

    def __init__(self, shape: Shape) -> None:
        self._levels = torch.empty(shape, dtype=torch.int8)
        self._scale = torch.empty(shape[:-1], dtype=torch.float32)

    def put(self, place: tuple[slice, ...], piece: Matrix) -> None:
        levels, scale = to_levels(as_plain(piece))
        self._levels[place].copy_(levels)
        self._scale[place].copy_(scale)

    def finished(self) -> Int8Matrix:
        return pack(self._levels, self._scale)


def builder(
    shape: Shape,
    weights: WeightFormat,
    device: torch.device,
    dtype: torch.dtype,
    *,
    prepacked: bool,
    may_keep: bool,
) -> Builder:
    """What holds a tensor of this shape.

    Args:
        weights: its format.
        dtype: of plain values; vectors are float32.
        prepacked: whether plain ones end up in oneDNN's order.
        may_keep: whether a whole tensor that is handed over may be kept instead of copied.
    """
    if weights is WeightFormat.FLOAT8:
        return _Float8(shape, device)
    if weights is WeightFormat.INT4:
        return _Int4(shape, device, dtype)
    if weights is WeightFormat.INT8:
        return _Int8(shape)
    kind = _Prepacked if prepacked else _Plain
    return kind(shape, device, torch.float32 if len(shape) == 1 else dtype, may_keep=may_keep)


def as_plain(piece: Matrix) -> torch.Tensor:
    """A piece that is stored plain as it is, another one in float32."""
    return piece if isinstance(piece, torch.Tensor) else dequantised(piece, torch.float32)
