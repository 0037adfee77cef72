"""The backbone's weights as plain data, the projections that run together stored together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from openjev_server.engine.matrix import Matrix

__all__ = ["BackboneWeights", "CheckpointError", "LayerWeights", "SelfConditioningWeights", "shown_faults"]

SHOWN = 20
"""Faults that a message names; `faults` has them all."""


def shown_faults(faults: Sequence[str]) -> str:
    more = len(faults) - SHOWN
    return "; ".join(faults[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


class CheckpointError(ValueError):
    """The checkpoint's tensors are not the model's: the message names each one, `faults` lists them.

    `of_tensors`: the faults are those of single tensors, not one of the whole.
    """

    def __init__(self, faults: str | Sequence[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        self.of_tensors = not isinstance(faults, str)
        text = shown_faults(self.faults)
        super().__init__(text if isinstance(faults, str) else f"the checkpoint does not fit its config.json: {text}")


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer layer. Matrices are [out, in]; norms and scalars are float32."""

    query: Matrix
    key_value: Matrix
    """K over V; K alone in a full layer, whose values are its keys before their norm."""
    output: Matrix
    query_norm: torch.Tensor
    key_norm: torch.Tensor
    norms: dict[str, torch.Tensor]
    gate_up: Matrix
    down: Matrix
    router: torch.Tensor
    router_scale: torch.Tensor
    expert_scale: torch.Tensor
    expert_gate_up: Matrix
    """[experts, 2 * ff, hidden]"""
    expert_down: Matrix
    """[experts, hidden, ff]"""
    encoder_scalar: float
    decoder_scalar: float


@dataclass(frozen=True, slots=True)
class SelfConditioningWeights:
    norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True)
class BackboneWeights:
    embedding: torch.Tensor
    """[vocab, hidden]; also the output head."""
    norm: torch.Tensor
    self_conditioning: SelfConditioningWeights
    layers: tuple[LayerWeights, ...]
