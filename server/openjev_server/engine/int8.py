"""8-bit products on a CPU, through oneDNN: one scale per output channel, one per row of activations.

A row's scale comes from that row alone, so what else is packed into a pass changes an answer only as far as float32's
last digit turns a rounding to a level. Processors without VNNI add pairs of products in 16 bits, which full 8-bit
levels overflow: they get weights of 7 bits (activations of 7 bits moved log-probabilities twice as far, 0.073 nats
against 0.037). Which processor this is, is measured (`probe`), not looked up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from time import perf_counter

import torch
from torch.nn import functional

__all__ = ["UNAVAILABLE", "ZERO", "Int8Matrix", "Int8Rows", "measured_gain", "pack", "probe", "to_levels"]

ROW_TOP = 127
"""Largest level of an activation; stored with `ZERO` added, as an unsigned byte."""
ZERO = 128
WEIGHT_TOPS = (127, 64)
"""Largest level of a weight, by preference. 64: a pair of products is at most 2 * 255 * 64 = 32,640, within 16 bits."""
UNAVAILABLE = (
    "int8 weights need a CPU for which this build of torch has oneDNN's 8-bit products: leave OPENJEV_WEIGHTS at auto"
)


@dataclass(frozen=True, slots=True)
class Int8Matrix:
    """weight[..., o, i] = level[..., o, i] * scale[..., o], levels up to `probe` in oneDNN's own order."""

    packed: tuple[torch.Tensor, ...]
    """One opaque [in, out] tensor per expert, or just one."""
    scale: torch.Tensor
    """float32 [..., out]"""

    def levels(self) -> torch.Tensor:
        """float32 [..., out, in]: what the identity's rows give."""
        width = self.packed[0].shape[0]
        identity = torch.eye(width, dtype=torch.uint8)
        outputs = self.scale.shape[-1]
        found = torch.stack([_product(identity, packed, torch.ones(outputs), 0).T for packed in self.packed])
        return found.reshape(*self.scale.shape, width)


@dataclass(frozen=True, slots=True)
class Int8Rows:
    """x[n, i] = (values[n, i] - ZERO) * scale[n]."""

    values: torch.Tensor
    """uint8 [n, in]"""
    scale: torch.Tensor
    """float32 [n, 1]"""

    @staticmethod
    def of(x: torch.Tensor) -> Int8Rows:
        """Quantises [n, in], each row's largest magnitude becoming `ROW_TOP`."""
        x = x.float()
        largest = torch.maximum(x.amax(-1, keepdim=True), x.amin(-1, keepdim=True).neg_())
        scale = largest.div_(ROW_TOP).clamp_min_(torch.finfo(torch.float32).tiny)
        # The half makes a rounding of the conversion, which cuts: these values are positive.
        values = (x * scale.reciprocal()).add_(ZERO + 0.5).to(torch.uint8)
        return Int8Rows(values, scale)

    def times(self, matrix: Int8Matrix) -> torch.Tensor:
        """[n, in] times a matrix that is not one of experts -> float32 [n, out]."""
        return _product(self.values, matrix.packed[0], matrix.scale, ZERO).mul_(self.scale)


def to_levels(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[..., out, in] -> int8 levels of the same shape and float32 scales [..., out].

    Raises RuntimeError where `probe` finds nothing.
    """
    top = probe()
    if top is None:
        raise RuntimeError(UNAVAILABLE)
    weight = weight.float()
    scale = weight.abs().amax(-1).div_(top).clamp_min_(torch.finfo(torch.float32).tiny)
    return (weight / scale[..., None]).round_().to(torch.int8), scale


def pack(levels: torch.Tensor, scale: torch.Tensor) -> Int8Matrix:
    """Levels [out, in] or [experts, out, in] and their scales, both of `to_levels`."""
    single = levels.unsqueeze(0) if levels.ndim == 2 else levels
    return Int8Matrix(tuple(_packed(one) for one in single), scale)


@cache
def probe() -> int | None:
    """The largest weight level whose products are exact here: 127, or 64 where pairs are added in 16 bits. None where
    torch has no such products, or wrong ones."""
    return next((top for top in WEIGHT_TOPS if _exact(top)), None)


def measured_gain() -> float | None:
    """How many times faster than float32 a product of the embedded checkpoint's size is here, activations quantised;
    None without `probe`. Takes about 0.1 s."""
    if probe() is None:
        return None
    x, weight = torch.ones(256, 576), torch.ones(1536, 576)
    matrix = pack(*to_levels(weight))
    plain = eight = float("inf")
    for _ in range(10):
        started = perf_counter()
        functional.linear(x, weight)
        between = perf_counter()
        Int8Rows.of(x).times(matrix)
        plain, eight = min(plain, between - started), min(eight, perf_counter() - between)
    return plain / eight


def _exact(top: int) -> bool:
    """Whether extreme and mixed levels give the integers that they should: 600 inputs are no multiple of a vector."""
    levels = torch.full((24, 600), top, dtype=torch.int8)
    levels[8:16] = -top
    levels[16:, ::3] = -5
    values = torch.full((5, 600), ZERO + ROW_TOP, dtype=torch.uint8)
    values[3:, 1::7] = 1
    expected = (values.double() - ZERO) @ levels.double().T
    try:
        found = _product(values, _packed(levels), torch.ones(24), ZERO)
    except (AttributeError, RuntimeError):
        return False
    return bool(torch.equal(found.double(), expected))


def _packed(levels: torch.Tensor) -> torch.Tensor:
    packed: torch.Tensor = torch.ops.onednn.qlinear_prepack(levels.contiguous(), None)
    return packed


def _product(values: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zero: int) -> torch.Tensor:
    """uint8 [n, in] less `zero`, times levels [out, in] * scale [out] -> float32 [n, out]."""
    zeros = torch.zeros(len(scale), dtype=torch.int64)
    product: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
        values, 1.0, zero, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return product
