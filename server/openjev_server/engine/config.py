"""The backbone's shape, read from a transformers `config.json` without importing transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from openjev_server.engine.config_values import as_written, value_faults
from openjev_server.engine.released import RELEASED

__all__ = ["BackboneConfig", "ConfigError", "LayerConfig", "RopeConfig", "read_config"]

MODEL_TYPE = "diffusion_gemma"
FULL = "full_attention"
SLIDING = "sliding_attention"
# transformers' class defaults (DiffusionGemmaTextConfig, 5.17): a released config may leave them out.
DEFAULT_GLOBAL_HEAD_DIM = 512
DEFAULT_PATTERN = 6
DEFAULT_ROPE: Mapping[str, Mapping[str, Any]] = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
}
IDENTIFYING = ("hidden_size", "num_experts", "num_hidden_layers", "vocab_size")
"""A text_config that has these of a released model claims to be that model, or fine-tuned from it. Where one of them
is wrong, the tensors' shapes say so."""
NAMES = {
    "heads": "num_attention_heads",
    "window": "sliding_window",
    "experts": "num_experts",
    "experts_per_token": "top_k_experts",
    "expert_size": "moe_intermediate_size",
    "activation": "hidden_activation",
    "rms_eps": "rms_norm_eps",
    "softcap": "final_logit_softcapping",
}
"""Fields of `BackboneConfig` that config.json calls otherwise."""
ABSENT = (
    "attn_logit_softcapping",
    "hidden_size_per_layer_input",
    "num_kv_shared_layers",
    "query_pre_attn_scalar",
    "rope_scaling",
    "use_double_wide_mlp",
)
"""Gemma settings that DiffusionGemma lacks: a value here means arithmetic that this backbone does not do. Scores are
not scaled (attention scale 1), so that a `query_pre_attn_scalar` would be one too."""


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
        """Reads `config.json`. Raises ConfigError (an unsupported value) or FileNotFoundError."""
        return BackboneConfig.from_dict(read_config(directory))

    @staticmethod
    def from_dict(raw: Mapping[str, Any]) -> BackboneConfig:
        """Reads the parsed file.

        Raises ConfigError when a value is unsupported, missing, impossible, or not that of the released model that the
        sizes claim to be: a wrong window or rope base would give wrong answers without a word.
        """
        text = raw.get("text_config", raw)
        if not isinstance(text, Mapping):
            raise ConfigError(f"config.json: text_config is {as_written(text)}, not an object")
        if raw.get("model_type", MODEL_TYPE) not in (MODEL_TYPE, f"{MODEL_TYPE}_text"):
            raise ConfigError(f"config.json is of model_type {raw['model_type']!r}: only {MODEL_TYPE} is served")
        if raw.get("tie_word_embeddings", True) is not True:
            raise ConfigError("config.json: tie_word_embeddings must be true: encoder, decoder and head share weights")
        try:
            config = _read(text)
        except KeyError as error:
            raise ConfigError(f"config.json: text_config has no {error.args[0]!r}") from error
        for name, released in RELEASED.items():
            if all(text[key] == released[key] for key in IDENTIFYING) and (faults := _differences(config, released)):
                raise ConfigError(f"config.json has the sizes of {name}, but {'; '.join(faults)}")
        return config


def read_config(directory: Path) -> dict[str, Any]:
    """`config.json`, parsed. Raises ConfigError when it is not JSON, FileNotFoundError when it is not there."""
    path = directory / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"no config.json in {directory}")
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"config.json cannot be read: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigError(f"config.json is {as_written(raw)}, not an object")
    return raw


def _read(text: Mapping[str, Any]) -> BackboneConfig:
    if faults := value_faults(text):
        raise ConfigError(f"config.json: {'; '.join(faults)}")
    activation = text.get("hidden_activation", "gelu_pytorch_tanh")
    if activation not in ("gelu_pytorch_tanh", "silu"):
        raise ConfigError(f"hidden_activation {activation!r} is not supported")
    for name in ("attention_bias", *ABSENT):
        if text.get(name):
            raise ConfigError(f"{name} {text[name]!r} is not supported")
    if (reading := text.get("use_bidirectional_attention")) not in (None, False, "vision"):
        raise ConfigError(f"use_bidirectional_attention {reading!r} is not supported: the state must be read causally")
    if text.get("tie_word_embeddings", True) is not True:
        raise ConfigError("an untied output head is not supported")
    count = text["num_hidden_layers"]
    kinds = text.get("layer_types") or [SLIDING if (i + 1) % DEFAULT_PATTERN else FULL for i in range(count)]
    for index, kind in enumerate(kinds):
        if kind not in (FULL, SLIDING):
            raise ConfigError(f"layer_types[{index}] {kind!r} is not supported")
    # transformers forces the last layer to full attention; a checkpoint that says otherwise was trained that way too.
    kinds = [*kinds[:-1], FULL]
    if len(kinds) != count:
        raise ConfigError(f"layer_types names {len(kinds)} layers, num_hidden_layers says {count}")
    if text["top_k_experts"] > text["num_experts"]:
        raise ConfigError(f"top_k_experts {text['top_k_experts']} of {text['num_experts']} num_experts is impossible")
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
    ropes = {**DEFAULT_ROPE, **(text.get("rope_parameters") or {})}
    if other := sorted(ropes.keys() - DEFAULT_ROPE.keys()):
        raise ConfigError(f"rope_parameters.{other[0]} is not supported: it has one entry for each kind of attention")
    rope = ropes[kind]
    if rope["rope_type"] not in ("default", "proportional") or rope.get("factor", 1.0) != 1.0:
        raise ConfigError(f"rope {rope!r} is not supported")
    if rope["rope_type"] == "default" and rope.get("partial_rotary_factor", 1.0) != 1.0:
        # In transformers this rotates the first dimensions only, at other frequencies than "proportional" does.
        raise ConfigError(f"rope_type 'default' with a partial_rotary_factor is not supported ({kind})")
    shape = {"head_dim": text["head_dim"], "num_key_value_heads": text["num_key_value_heads"]}
    shape.update(_overrides(text, index, kind))
    heads, shared = text["num_attention_heads"], shape["num_key_value_heads"]
    if heads % shared:
        raise ConfigError(
            f"layer {index} has {shared} key-value heads, which do not divide {heads} num_attention_heads"
        )
    if shape["head_dim"] % 2:
        raise ConfigError(f"layer {index} has a head_dim of {shape['head_dim']}, which must be even")
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
        # transformers writes layer numbers with leading zeros ("05" of 30 layers).
        named = {int(key) if str(key).isdigit() else key: own for key, own in table.items()}
        return named.get(index) or named.get(kind) or {}
    if kind != FULL:
        return {}
    own = {"head_dim": text.get("global_head_dim", DEFAULT_GLOBAL_HEAD_DIM)}
    if text.get("num_global_key_value_heads") is not None:
        own["num_key_value_heads"] = text["num_global_key_value_heads"]
    return own


def _differences(config: BackboneConfig, released: Mapping[str, Any]) -> list[str]:
    """What sets a configuration apart from a released one, by the names of config.json. How many positions a
    fine-tuned model takes is its own affair."""
    true = _read(released)
    faults = []
    for field in fields(BackboneConfig):
        ours, theirs = getattr(config, field.name), getattr(true, field.name)
        if field.name not in ("layers", "max_positions") and ours != theirs:
            faults.append(f"{NAMES.get(field.name, field.name)} is {ours!r}, not {theirs!r}")
    for index, (ours, theirs) in enumerate(zip(config.layers, true.layers, strict=True)):
        kind = FULL if theirs.full else SLIDING
        pairs = [
            (f"layer_types[{index}]", FULL if ours.full else SLIDING, kind),
            ("global_head_dim" if theirs.full else "head_dim", ours.head_dim, theirs.head_dim),
            (
                "num_global_key_value_heads" if theirs.full else "num_key_value_heads",
                ours.kv_heads,
                theirs.kv_heads,
            ),
            (f"rope_parameters.{kind}.rope_theta", ours.rope.theta, theirs.rope.theta),
            (f"rope_parameters.{kind}.partial_rotary_factor", ours.rope.partial, theirs.rope.partial),
        ]
        if ours.full != theirs.full:
            pairs = pairs[:1]  # the rest follows from it
        faults += [f"{name} is {mine!r}, not {right!r}" for name, mine, right in pairs if mine != right]
    return list(dict.fromkeys(faults))
