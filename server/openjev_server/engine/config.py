"""The backbone's shape, read from a transformers `config.json` without importing transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BackboneConfig", "ConfigError", "LayerConfig", "RopeConfig"]

FULL = "full_attention"
SLIDING = "sliding_attention"
# transformers' class defaults (DiffusionGemmaTextConfig, 5.17): a released config may leave them out.
DEFAULT_GLOBAL_HEAD_DIM = 512
DEFAULT_PATTERN = 6
DEFAULT_ROPE: Mapping[str, Mapping[str, Any]] = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}


class ConfigError(ValueError):
    """The checkpoint's configuration asks for something this backbone does not compute."""


@dataclass(frozen=True, slots=True)
class RopeConfig:
    theta: float
    partial: float
    """Share of the frequencies that rotate; the others stay at angle 0 ("proportional")."""


@dataclass(frozen=True, slots=True)
class LayerConfig:
    full: bool
    """Full attention, else a sliding window. Full layers have no value projection: V = RMS(K before its norm)."""
    head_dim: int
    kv_heads: int
    rope: RopeConfig


@dataclass(frozen=True, slots=True)
class BackboneConfig:
    """Everything the forward pass needs to know; sizes in elements, the window in tokens."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    heads: int
    window: int
    experts: int
    experts_per_token: int
    expert_size: int
    activation: str
    rms_eps: float
    softcap: float
    max_positions: int
    layers: tuple[LayerConfig, ...]

    @staticmethod
    def from_directory(directory: Path) -> BackboneConfig:
        """Reads `config.json`. Raises ConfigError (an unsupported value) or OSError (no such file)."""
        raw = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        return BackboneConfig.from_dict(raw)

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> BackboneConfig:
        """Reads the parsed file. Raises ConfigError when a value is unsupported or missing."""
        text = raw.get("text_config", raw)
        try:
            return _read(text)
        except KeyError as error:
            raise ConfigError(f"config.json: text_config has no {error.args[0]!r}") from error


def _read(text: Mapping[str, Any]) -> BackboneConfig:
    activation = text.get("hidden_activation", "gelu_pytorch_tanh")
    if activation not in ("gelu_pytorch_tanh", "silu"):
        raise ConfigError(f"hidden_activation {activation!r} is not supported")
    if text.get("attention_bias"):
        raise ConfigError("attention_bias is not supported")
    if text.get("use_bidirectional_attention") == "all":
        raise ConfigError("use_bidirectional_attention 'all' is not supported: the state must be read causally")
    if text.get("tie_word_embeddings", True) is not True:
        raise ConfigError("an untied output head is not supported")
    count = text["num_hidden_layers"]
    kinds = text.get("layer_types") or [SLIDING if (i + 1) % DEFAULT_PATTERN else FULL for i in range(count)]
    # transformers forces the last layer to full attention; a checkpoint that says otherwise was trained that way too.
    kinds = [*kinds[:-1], FULL]
    if len(kinds) != count:
        raise ConfigError(f"layer_types names {len(kinds)} layers, num_hidden_layers says {count}")
    return BackboneConfig(
        vocab_size=text["vocab_size"],
        hidden_size=text["hidden_size"],
        intermediate_size=text["intermediate_size"],
        heads=text["num_attention_heads"],
        window=text["sliding_window"],
        experts=text["num_experts"],
        experts_per_token=text["top_k_experts"],
        expert_size=text["moe_intermediate_size"],
        activation=activation,
        rms_eps=text.get("rms_norm_eps", 1e-6),
        softcap=text.get("final_logit_softcapping", 30.0),
        max_positions=text.get("max_position_embeddings", 131_072),
        layers=tuple(_layer(text, index, kind) for index, kind in enumerate(kinds)),
    )


def _layer(text: Mapping[str, Any], index: int, kind: str) -> LayerConfig:
    if kind not in (FULL, SLIDING):
        raise ConfigError(f"layer type {kind!r} is not supported")
    rope = {**DEFAULT_ROPE, **(text.get("rope_parameters") or {})}[kind]
    if rope["rope_type"] not in ("default", "proportional") or rope.get("factor", 1.0) != 1.0:
        raise ConfigError(f"rope {rope!r} is not supported")
    shape = {"head_dim": text["head_dim"], "num_key_value_heads": text["num_key_value_heads"]}
    shape.update(_overrides(text, index, kind))
    return LayerConfig(
        full=kind == FULL,
        head_dim=shape["head_dim"],
        kv_heads=shape["num_key_value_heads"],
        rope=RopeConfig(theta=rope["rope_theta"], partial=rope.get("partial_rotary_factor", 1.0)),
    )


def _overrides(text: Mapping[str, Any], index: int, kind: str) -> Mapping[str, int]:
    """A layer's own head sizes: `per_layer_config` where the file has one, else the `global_*` fields."""
    table = text.get("per_layer_config")
    if table is not None:
        return table.get(str(index)) or table.get(index) or table.get(kind) or {}
    if kind != FULL:
        return {}
    own = {"head_dim": text.get("global_head_dim", DEFAULT_GLOBAL_HEAD_DIM)}
    if text.get("num_global_key_value_heads") is not None:
        own["num_key_value_heads"] = text["num_global_key_value_heads"]
    return own
