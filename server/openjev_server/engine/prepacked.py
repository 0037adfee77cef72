"""Float32 matrices in the order in which oneDNN multiplies them on a CPU, arranged once instead of in every product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch.nn import functional

__all__ = ["PrepackedMatrix", "can_prepack", "prepack"]


@dataclass(frozen=True, slots=True)
class PrepackedMatrix:
    """A float32 weight [..., out, in], in oneDNN's own order."""

    packed: tuple[torch.Tensor, ...]
    """One opaque tensor per expert, or just one."""
    shape: torch.Size

    def plain(self) -> torch.Tensor:
        """[..., out, in]"""
        return torch.stack([one.to_dense() for one in self.packed]).reshape(self.shape)

    def of(self, x: torch.Tensor) -> torch.Tensor:
        """float32 [n, in] times a matrix that is not one of experts -> [n, out]."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed[0], None, "none", [], "")
        return product


def prepack(weight: torch.Tensor) -> PrepackedMatrix:
    """A float32 weight [out, in] or [experts, out, in] on a CPU, where `can_prepack`."""
    single = weight.unsqueeze(0) if weight.ndim == 2 else weight
    reorder = torch.ops.mkldnn._reorder_linear_weight
    return PrepackedMatrix(tuple(reorder(one.contiguous()) for one in single), weight.shape)


@cache
def can_prepack() -> bool:
    """Whether this is an x86 CPU and a build of torch that has such products, and they are right."""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        return False
    x, weight = torch.arange(5 * 40.0).reshape(5, 40), torch.arange(24 * 40.0).reshape(24, 40) - 480
    try:
        matrix = prepack(weight)
        return torch.equal(matrix.of(x), functional.linear(x, weight)) and torch.equal(matrix.plain(), weight)
    except (AttributeError, RuntimeError):
        return False
