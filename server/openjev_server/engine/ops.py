"""Two elementwise pieces that the layers, the experts and the self-conditioning share."""

from __future__ import annotations

import torch
from torch.nn import functional

__all__ = ["gated", "rms"]


def rms(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """Root-mean-square norm over the last axis, in float32: x / sqrt(mean(x^2) + eps) * weight."""
    return functional.rms_norm(x.float(), (x.shape[-1],), weight, eps).to(x.dtype)


def gated(activation: str, gate_up: torch.Tensor) -> torch.Tensor:
    """act(gate) * up for [n, 2 * inner] -> [n, inner]."""
    gate, up = gate_up.chunk(2, dim=-1)
    acted = functional.silu(gate) if activation == "silu" else functional.gelu(gate, approximate="tanh")
    return acted.mul_(up)
