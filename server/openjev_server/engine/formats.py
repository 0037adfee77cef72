"""How a checkpoint's matrices are stored, by its config.json; what is not supported is refused with advice."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from openjev_server.engine.config import ConfigError
from openjev_server.engine.config_values import as_written
from openjev_server.engine.released import DIFFUSIONGEMMA_26B_A4B

__all__ = ["Stored", "WeightFormat", "stored_format"]

ADVICE = (
    f"take {DIFFUSIONGEMMA_26B_A4B} with OPENJEV_WEIGHTS=float8 or int4, which quantises while loading, "
    "or an FP8-dynamic compressed-tensors checkpoint"
)
NAMES = {
    "awq": "AWQ",
    "bitsandbytes": "bitsandbytes",
    "fp8": "block-scaled FP8",
    "gguf": "GGUF",
    "gptq": "GPTQ",
    "hqq": "HQQ",
    "modelopt": "ModelOpt",
    "mxfp4": "MXFP4",
    "quanto": "Quanto",
    "torchao": "torchao",
}


class Stored(StrEnum):
    """How the checkpoint's files hold the linear maps and experts."""

    PLAIN = "plain"
    """Floating point; what dtype, each tensor's header says."""
    FLOAT8 = "float8"
    """compressed-tensors `float-quantized`: float8_e4m3fn with one scale an output channel."""


class WeightFormat(StrEnum):
    """How the engine holds the matrices of attention, dense MLP and experts. All else is always plain."""

    PLAIN = "plain"
    FLOAT8 = "float8"
    INT4 = "int4"
    INT8 = "int8"
    """On a CPU only: multiplied as integers, all but the first two layers and the projections to queries, keys and
    values."""


def stored_format(raw: Mapping[str, Any]) -> Stored:
    """Reads `quantization_config` of a parsed config.json. Raises ConfigError for what is not supported."""
    text = raw.get("text_config", {})
    outer = _object("quantization_config", raw.get("quantization_config"))
    quantisation = outer or _object("quantization_config", text.get("quantization_config"))
    if not quantisation:
        return Stored.PLAIN
    method = str(quantisation.get("quant_method", "unknown")).lower()
    if method != "compressed-tensors":
        kind = "NVFP4" if "FP4" in str(quantisation.get("quant_algo", "")) else NAMES.get(method, repr(method))
        raise ConfigError(f"{kind} checkpoints are not supported: {ADVICE}")
    groups = _object("config_groups", quantisation.get("config_groups"))
    form = str(quantisation.get("format", "unknown"))
    for name, entry in groups.items():
        group = _object(f"config_groups.{name}", entry)
        own = str(group.get("format") or form)
        if own != "float-quantized":
            kind = "NVFP4" if "nvfp4" in own else repr(own)
            raise ConfigError(f"compressed-tensors checkpoints of format {kind} are not supported: {ADVICE}")
        _check_group(f"config_groups.{name}", group)
    if not groups or form != "float-quantized":
        raise ConfigError(f"compressed-tensors checkpoints of format {form!r} are not supported: {ADVICE}")
    return Stored.FLOAT8


def _object(name: str, value: object) -> Mapping[str, Any]:
    """An entry that is an object, or absent. Raises ConfigError."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"config.json: {name} is {as_written(value)}, not an object ({ADVICE})")
    return value


def _check_group(name: str, group: Mapping[str, Any]) -> None:
    weights, inputs = (_object(f"{name}.{part}", group.get(part)) for part in ("weights", "input_activations"))
    if (weights.get("type"), weights.get("num_bits"), weights.get("strategy")) != ("float", 8, "channel"):
        raise ConfigError(
            f"FP8 weights with {weights.get('strategy')!r} scales are not supported, only 'channel' ones: {ADVICE}"
        )
    if weights.get("dynamic") or not weights.get("symmetric", True):
        raise ConfigError(f"FP8 weights must be static and symmetric: {ADVICE}")
    if inputs and not inputs.get("dynamic"):
        raise ConfigError(f"FP8 checkpoints with static activation scales are not supported: {ADVICE}")
