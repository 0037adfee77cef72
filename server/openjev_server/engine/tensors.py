"""The text tensors of a DiffusionGemma checkpoint: names as transformers saves them, and their shapes."""

from __future__ import annotations

from openjev_server.engine.config import BackboneConfig, LayerConfig

__all__ = [
    "DECODER",
    "ENCODER",
    "ENCODER_LAYERS",
    "LAYER_NORMS",
    "SKIPPED_PREFIXES",
    "TIED_HEAD",
    "Shape",
    "layer_name",
    "tensor_shapes",
]

DECODER = "model.decoder."
ENCODER = "model.encoder.language_model."
ENCODER_LAYERS = f"{ENCODER}layers."
TIED_HEAD = "lm_head.weight"
SKIPPED_PREFIXES = ("model.encoder.vision_tower.", "model.encoder.embed_vision.")
"""Vision: a text server reads none of it."""

LAYER_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "pre_feedforward_layernorm_2",
    "post_feedforward_layernorm_1",
    "post_feedforward_layernorm_2",
    "post_feedforward_layernorm",
)

Shape = tuple[int, ...]


def layer_name(index: int, tensor: str) -> str:
    return f"{DECODER}layers.{index}.{tensor}"


def tensor_shapes(config: BackboneConfig) -> dict[str, Shape]:
    """Every tensor that the backbone consumes, by name. The encoder has its own `layer_scalar`s, nothing else."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, Shape] = {
        f"{DECODER}embed_tokens.weight": (config.vocab_size, hidden),
        f"{DECODER}norm.weight": (hidden,),
        f"{DECODER}self_conditioning.pre_norm.weight": (hidden,),
        f"{DECODER}self_conditioning.gate_proj.weight": (inner, hidden),
        f"{DECODER}self_conditioning.up_proj.weight": (inner, hidden),
        f"{DECODER}self_conditioning.down_proj.weight": (hidden, inner),
    }
    for index, layer in enumerate(config.layers):
        shapes.update({layer_name(index, name): shape for name, shape in _layer_shapes(config, layer).items()})
        shapes[f"{ENCODER_LAYERS}{index}.layer_scalar"] = (1,)
    return shapes


def _layer_shapes(config: BackboneConfig, layer: LayerConfig) -> dict[str, Shape]:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    shapes: dict[str, Shape] = {f"{norm}.weight": (hidden,) for norm in LAYER_NORMS}
    shapes |= {
        "self_attn.q_proj.weight": (query, hidden),
        "self_attn.k_proj.weight": (key, hidden),
        "self_attn.o_proj.weight": (hidden, query),
        "self_attn.q_norm.weight": (layer.head_dim,),
        "self_attn.k_norm.weight": (layer.head_dim,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
        "router.proj.weight": (config.experts, hidden),
        "router.scale": (hidden,),
        "router.per_expert_scale": (config.experts,),
        "experts.gate_up_proj": (config.experts, 2 * config.expert_size, hidden),
        "experts.down_proj": (config.experts, hidden, config.expert_size),
        "layer_scalar": (1,),
    }
    if not layer.full:
        shapes["self_attn.v_proj.weight"] = (key, hidden)
    return shapes
