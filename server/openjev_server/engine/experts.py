"""The mixture of experts of one layer: route each row to its top experts and sum their gated MLPs."""

from __future__ import annotations

import torch
from torch.nn import functional

from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.matrix import expert, linear
from openjev_server.engine.ops import gated, rms
from openjev_server.engine.weights import LayerWeights

__all__ = ["mixture"]


def mixture(config: BackboneConfig, weights: LayerWeights, hidden: torch.Tensor, normed: torch.Tensor) -> torch.Tensor:
    """[n, hidden] -> [n, hidden]. The router reads `hidden` (its own unscaled norm), the experts read `normed`."""
    if config.experts == 1:
        # The one expert's softmax share is 1.
        return _expert(config, weights, 0, normed) * weights.expert_scale.to(normed.dtype)
    shares, chosen = _route(config, weights, hidden)
    rows = torch.arange(len(normed), device=normed.device).repeat_interleave(config.experts_per_token)
    order = chosen.flatten().argsort(stable=True)
    rows, shares = rows[order], shares.flatten()[order]
    counts = torch.bincount(chosen.flatten(), minlength=config.experts).tolist()
    mixed = torch.zeros_like(normed)
    start = 0
    for number, count in enumerate(counts):
        if count:
            mine = slice(start, start + count)
            outputs = _expert(config, weights, number, normed[rows[mine]]) * shares[mine, None].to(normed.dtype)
            mixed.index_add_(0, rows[mine], outputs)
            start += count
    return mixed


def _route(config: BackboneConfig, weights: LayerWeights, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Shares [n, k] that sum to 1 before the per-expert scale, and expert numbers [n, k]."""
    normed = rms(hidden, None, config.rms_eps)
    scaled = normed * weights.router_scale.to(normed.dtype) * config.hidden_size**-0.5
    scores = functional.linear(scaled, weights.router).float().softmax(-1)
    shares, chosen = scores.topk(config.experts_per_token, dim=-1)
    shares = shares / shares.sum(-1, keepdim=True)
    return shares * weights.expert_scale[chosen], chosen


def _expert(config: BackboneConfig, weights: LayerWeights, number: int, rows: torch.Tensor) -> torch.Tensor:
    inner = gated(config.activation, linear(rows, expert(weights.expert_gate_up, number)))
    return linear(inner, expert(weights.expert_down, number))
