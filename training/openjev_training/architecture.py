"""The shape of the embedded model and the transformers configuration that describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["NANO", "Architecture"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A DiffusionGemma text stack small enough to ship inside a package.

    Every layer but the last is a sliding layer; transformers forces the last one to be a full-attention layer, which
    has no value projection (its values are its normalised keys) and turns only a quarter of its frequencies.
    """

    vocab: int = 16384
    hidden: int = 576
    layers: int = 13
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    feed_forward: int = 1536
    expert: int = 64
    """Width of an expert's MLP."""
    experts: int = 1
    chosen: int = 1
    """Experts that a row goes to. With one expert there is no router."""
    window: int = 2048
    rope_theta: float = 1e5
    partial_rotary: float = 0.25
    softcap: float = 30.0
    max_positions: int = 4096

    def is_full(self, layer: int) -> bool:
        return layer == self.layers - 1

    def text_config(self) -> dict[str, Any]:
        """The `text_config` of a transformers configuration, only the keys that differ from a shipped one."""
        types = ["full_attention" if self.is_full(i) else "sliding_attention" for i in range(self.layers)]
        return {
            "final_logit_softcapping": self.softcap,
            "head_dim": self.head_dim,
            "global_head_dim": self.head_dim,
            "hidden_activation": "silu",
            "hidden_size": self.hidden,
            "intermediate_size": self.feed_forward,
            "layer_types": types,
            "max_position_embeddings": 32768,
            "moe_intermediate_size": self.expert,
            "num_attention_heads": self.heads,
            "num_experts": self.experts,
            "num_global_key_value_heads": self.kv_heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 2,
            "rope_parameters": {
                "full_attention": {
                    "partial_rotary_factor": self.partial_rotary,
                    "rope_theta": self.rope_theta,
                    "rope_type": "proportional",
                },
                "sliding_attention": {"rope_theta": self.rope_theta, "rope_type": "default"},
            },
            "sliding_window": self.window,
            "top_k_experts": self.chosen,
            "use_bidirectional_attention": "vision",
            "vocab_size": self.vocab,
        }


NANO = Architecture()
