"""A layer's mixture of experts: a router that reads the residual, and the experts' gated MLPs.

The same arithmetic as transformers' class and the server's engine: top-k shares of a softmax over all experts,
renormalised, times a scale per expert. Every row is computed by its chosen experts alone, so gradients reach the
router through their shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch calls it
from torch import Tensor, nn

from .architecture import Architecture

__all__ = ["Mixture", "Routed", "balance", "rms", "shares"]


def rms(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Root-mean-square norm over the last axis, in float32."""
    return F.rms_norm(x.float(), x.shape[-1:], None if weight is None else weight.float(), 1e-6).to(x.dtype)


@dataclass(frozen=True, slots=True)
class Routed:
    """Where one layer's router sent the rows."""

    probabilities: Tensor
    """[T, experts], softmax over all of them"""
    chosen: Tensor
    """[T, k]"""


class Mixture(nn.Module):
    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self._chosen = arch.chosen
        self.gate_up = nn.Parameter(torch.randn(arch.experts, 2 * arch.expert, arch.hidden) * arch.hidden**-0.5)
        self.down = nn.Parameter(torch.randn(arch.experts, arch.hidden, arch.expert) * arch.expert**-0.5)
        self.router = nn.Parameter(torch.randn(arch.experts, arch.hidden))
        self.scale = nn.Parameter(torch.ones(arch.hidden))
        self.expert_scale = nn.Parameter(torch.ones(arch.experts))

    def forward(self, residual: Tensor, normed: Tensor) -> tuple[Tensor, Routed]:
        """[T, hidden] twice -> [T, hidden]. The router reads `residual`, the experts read `normed`."""
        k = self._chosen
        scaled = rms(residual) * self.scale.to(residual.dtype) * residual.shape[-1] ** -0.5
        probabilities = F.linear(scaled, self.router).float().softmax(-1)
        top, chosen = probabilities.topk(k, dim=-1)
        share = (top / top.sum(-1, keepdim=True) * self.expert_scale[chosen]).flatten()
        order = chosen.flatten().argsort(stable=True)
        rows = order // k
        counts = torch.bincount(chosen.flatten(), minlength=len(self.router)).tolist()
        # Unbound at once: a gradient through `gate_up[number]` is a whole [experts, ...] of zeros for every expert.
        experts = zip(
            self.gate_up.unbind(), self.down.unbind(), torch.split(normed.index_select(0, rows), counts), strict=True
        )
        parts = [
            F.linear(F.silu(gate) * up, down)
            for gate_up, down, mine in experts
            for gate, up in [F.linear(mine, gate_up).chunk(2, -1)]
        ]
        outputs = torch.cat(parts) * share[order, None].to(parts[0].dtype)
        return torch.zeros_like(normed).index_add(0, rows, outputs.to(normed.dtype)), Routed(probabilities, chosen)


def shares(routed: Routed, real: Tensor) -> Tensor:
    """Share of the rows' choices that went to each expert, [experts], summing to 1; `real` [T] leaves padding out."""
    counts = torch.bincount(routed.chosen[real].flatten(), minlength=routed.probabilities.shape[1])
    return counts / counts.sum()


def balance(routed: Routed, real: Tensor) -> Tensor:
    """experts * sum over experts of share * mean probability: 1 where both are even, more where a router collapses.

    From Fedus, Zoph and Shazeer, Switch Transformers, 2021, equation 4; its gradient is that of the probabilities.
    """
    mean = routed.probabilities[real].mean(0)
    return len(mean) * (shares(routed, real) * mean).sum()
