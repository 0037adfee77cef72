"""What is published of the models that this server is made for: data only, each value with its source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["DIFFUSIONGEMMA_26B_A4B", "DIFFUSIONGEMMA_26B_A4B_TEXT", "PINNED_REVISIONS", "RELEASED"]

DIFFUSIONGEMMA_26B_A4B = "google/diffusiongemma-26B-A4B-it"

PINNED_REVISIONS: Mapping[str, str] = {DIFFUSIONGEMMA_26B_A4B: "f7f5b7f5fa82ffc52addd066915886d497f5517b"}
"""Hub id -> the commit that is downloaded unless another is asked for. This one is what github.com/JoshuaSP/open-jev
recorded its answers with."""

DIFFUSIONGEMMA_26B_A4B_TEXT: Mapping[str, Any] = {
    "attention_bias": False,
    "final_logit_softcapping": 30.0,
    "global_head_dim": 512,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 2816,
    "intermediate_size": 2112,
    "layer_types": ["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(30)],
    "max_position_embeddings": 262_144,
    "model_type": "diffusion_gemma_text",
    "moe_intermediate_size": 704,
    "num_attention_heads": 16,
    "num_experts": 128,
    "num_global_key_value_heads": 2,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0, "rope_type": "proportional"},
        "sliding_attention": {"rope_theta": 10_000.0, "rope_type": "default"},
    },
    "sliding_window": 1024,
    "tie_word_embeddings": True,
    "top_k_experts": 8,
    "use_bidirectional_attention": "vision",
    "vocab_size": 262_144,
}
"""`text_config` of the released checkpoint's config.json, as derived checkpoints repeat it (the class's defaults in
transformers are another model's). Its tensors in bfloat16 with the vision tower are 51,647,562,456 bytes, which is
what the public shards' headers add up to."""

RELEASED: Mapping[str, Mapping[str, Any]] = {DIFFUSIONGEMMA_26B_A4B: DIFFUSIONGEMMA_26B_A4B_TEXT}
