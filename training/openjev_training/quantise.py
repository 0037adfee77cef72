"""The checkpoint's rounding on the training device, for the quantisation-aware tail and the measurements after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from openjev_server.engine.quantised import group_levels, row_levels
from torch import Tensor

from .backbone import Nano

__all__ = ["quantised", "round_groups", "round_rows"]


def round_groups(weight: Tensor) -> Tensor:
    """The 4-bit values that the checkpoint would give back for a matrix: groups of 32, half scale and half minimum."""
    levels, scale, low = group_levels(weight)
    return (levels * scale.float() + low.float()).view(weight.shape)


def round_rows(weight: Tensor) -> Tensor:
    """The int8 values that the checkpoint would give back for the embeddings: one half scale a row."""
    levels, scale = row_levels(weight)
    return levels * scale.float()


@contextmanager
def quantised(model: Nano) -> Iterator[None]:
    """Inside, the weights are what the checkpoint would give back; after it, the exact ones are in place again.

    A backward pass inside leaves its gradients on the parameters: stepping afterwards is the straight-through
    estimator of quantisation-aware training.
    """
    kept: list[tuple[torch.nn.Parameter, Tensor]] = []
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim < 2:
                continue
            kept.append((p, p.detach().clone()))
            p.copy_(round_rows(p) if name == "embed.weight" else round_groups(p))
    try:
        yield
    finally:
        with torch.no_grad():
            for p, exact in kept:
                p.copy_(exact)
