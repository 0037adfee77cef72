"""The backbone's weights as plain tensors, the projections that run together stored together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.tensors import (
    DECODER,
    ENCODER_LAYERS,
    LAYER_NORMS,
    SKIPPED_PREFIXES,
    TIED_HEAD,
    layer_name,
    tensor_shapes,
)

__all__ = ["BackboneWeights", "CheckpointError", "LayerWeights", "SelfConditioningWeights", "gather"]

Named = Iterable[tuple[str, torch.Tensor]]


class CheckpointError(ValueError):
    """The checkpoint's tensors are not the model's: the message names each one."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One transformer layer. Matrices are [out, in]; norms and scalars are float32."""

    query: torch.Tensor
    key_value: torch.Tensor
    """K over V; K alone in a full layer, whose values are its keys before their norm."""
    output: torch.Tensor
    query_norm: torch.Tensor
    key_norm: torch.Tensor
    norms: dict[str, torch.Tensor]
    gate_up: torch.Tensor
    down: torch.Tensor
    router: torch.Tensor
    router_scale: torch.Tensor
    expert_scale: torch.Tensor
    expert_gate_up: torch.Tensor
    expert_down: torch.Tensor
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


def gather(
    config: BackboneConfig,
    named: Named,
    *,
    device: torch.device,
    dtype: torch.dtype,
    progress: Callable[[str], None] | None = None,
) -> BackboneWeights:
    """Places every tensor once. Raises CheckpointError naming the missing, extra, misshapen or non-finite ones."""
    shapes = tensor_shapes(config)
    found: dict[str, torch.Tensor] = {}
    faults: list[str] = []
    tied_head: torch.Tensor | None = None
    for name, tensor in named:
        if name.startswith(SKIPPED_PREFIXES):
            continue
        if name == TIED_HEAD:
            tied_head = tensor
            continue
        if name not in shapes:
            faults.append(f"{name} is not part of the model")
        elif tuple(tensor.shape) != shapes[name]:
            faults.append(f"{name} has shape {tuple(tensor.shape)}, not {shapes[name]}")
        elif not bool(torch.isfinite(tensor).all()):
            faults.append(f"{name} has values that are not finite")
        else:
            kept = torch.float32 if tensor.ndim == 1 else dtype
            found[name] = tensor.to(device=device, dtype=kept)
            if progress is not None:
                progress(name)
    faults += [f"{name} is missing" for name in shapes if name not in found and not any(name in f for f in faults)]
    embedding = found.get(f"{DECODER}embed_tokens.weight")
    if tied_head is not None and embedding is not None and not torch.equal(tied_head.to(embedding), embedding):
        faults.append(f"{TIED_HEAD} is not tied to the embedding")
    if faults:
        shown = "; ".join(faults[:20]) + (f"; and {len(faults) - 20} more" if len(faults) > 20 else "")
        raise CheckpointError(f"the checkpoint does not fit its config.json: {shown}")
    return _assemble(config, found)


def _assemble(config: BackboneConfig, found: dict[str, torch.Tensor]) -> BackboneWeights:
    """Consumes `found`, so that fused copies do not double the memory."""

    def take(name: str) -> torch.Tensor:
        return found.pop(DECODER + name)

    def fuse(*names: str) -> torch.Tensor:
        return torch.cat([found.pop(name) for name in names])

    conditioning = f"{DECODER}self_conditioning."
    layers = []
    for index, layer in enumerate(config.layers):

        def of(tensor: str, index: int = index) -> str:
            return layer_name(index, tensor)

        key_value = [of("self_attn.k_proj.weight")] + ([] if layer.full else [of("self_attn.v_proj.weight")])
        layers.append(
            LayerWeights(
                query=found.pop(of("self_attn.q_proj.weight")),
                key_value=fuse(*key_value),
                output=found.pop(of("self_attn.o_proj.weight")),
                query_norm=found.pop(of("self_attn.q_norm.weight")),
                key_norm=found.pop(of("self_attn.k_norm.weight")),
                norms={norm: found.pop(of(f"{norm}.weight")) for norm in LAYER_NORMS},
                gate_up=fuse(of("mlp.gate_proj.weight"), of("mlp.up_proj.weight")),
                down=found.pop(of("mlp.down_proj.weight")),
                router=found.pop(of("router.proj.weight")),
                router_scale=found.pop(of("router.scale")),
                expert_scale=found.pop(of("router.per_expert_scale")),
                expert_gate_up=found.pop(of("experts.gate_up_proj")),
                expert_down=found.pop(of("experts.down_proj")),
                encoder_scalar=float(found.pop(f"{ENCODER_LAYERS}{index}.layer_scalar")),
                decoder_scalar=float(found.pop(of("layer_scalar"))),
            )
        )
    return BackboneWeights(
        embedding=take("embed_tokens.weight"),
        norm=take("norm.weight"),
        self_conditioning=SelfConditioningWeights(
            norm=take("self_conditioning.pre_norm.weight"),
            gate_up=fuse(f"{conditioning}gate_proj.weight", f"{conditioning}up_proj.weight"),
            down=take("self_conditioning.down_proj.weight"),
        ),
        layers=tuple(layers),
    )
