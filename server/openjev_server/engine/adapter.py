"""LoRA adapters as peft saves them, merged while the checkpoint is read: W + scale * B @ A, in float32.

peft itself is not needed. Encoder and decoder are one stack of matrices here, as in the released checkpoint: an
adapter of the one's matrices is an adapter of that stack, which is also what peft's own merge makes of it (and if both
ran the same adapted layers in training, peft saves them under one of the names). An adapter that changes the encoder
otherwise than the decoder is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from openjev_server.engine.config_values import as_written
from openjev_server.engine.sources import ADAPTER_WEIGHTS
from openjev_server.engine.tensors import DECODER, ENCODER, Shape
from openjev_server.engine.weights import CheckpointError, shown_faults

__all__ = ["ADAPTER_CONFIG", "Adapter", "LowRank", "read_adapter"]

ADAPTER_CONFIG = "adapter_config.json"
PICKLED = "adapter_model.bin"
PREFIX = "base_model.model."
LORA_A, LORA_B = ".lora_A.weight", ".lora_B.weight"
UNSUPPORTED = (
    "alora_invocation_tokens",
    "arrow_config",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "modules_to_save",
    "monteclora_config",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
    "velora_config",
)
"""peft's LoraConfig fields (0.21) that ask for more than W + scale * B @ A."""
HARMLESS_STARTS = ("eva", "gaussian", "orthogonal")
"""Named `init_lora_weights` that leave the base weights as they are; the others change them."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """scale * b @ a."""

    a: torch.Tensor
    """float32 [rank, in]"""
    b: torch.Tensor
    """float32 [out, rank]"""
    scale: float


@dataclass(frozen=True, slots=True)
class Adapter:
    """Changes of matrices, by the names of the released checkpoint."""

    changes: Mapping[str, LowRank]
    without_effect: tuple[str, ...] = ()
    """Those of the changes that add zero: an untrained B, or an alpha of 0."""
    base: str | None = None
    """The model that it was trained on, as peft wrote it down."""

    def delta(self, name: str, rows: slice, device: torch.device) -> torch.Tensor | None:
        """float32 [rows, in] to add to those rows of a matrix; None where the adapter does not touch it."""
        change = self.changes.get(name)
        if change is None:
            return None
        return change.b[rows].to(device) @ change.a.to(device) * change.scale


def read_adapter(directory: Path, shapes: Mapping[str, Shape]) -> Adapter:
    """Reads `adapter_config.json` and `adapter_model.safetensors`.

    Raises CheckpointError naming what is missing, of another shape, not finite, or not a LoRA of this model.
    """
    try:
        config = json.loads((directory / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise CheckpointError(f"the adapter's {ADAPTER_CONFIG} is {as_written(config)}, not an object")
        tensors = load_file(directory / ADAPTER_WEIGHTS)
    except FileNotFoundError as error:
        if (directory / PICKLED).is_file() and not (directory / ADAPTER_WEIGHTS).is_file():
            raise CheckpointError(
                f"the adapter in {directory} has its weights as {PICKLED}: only {ADAPTER_WEIGHTS} is read (a pickle "
                "can run code); save it with peft's safe_serialization"
            ) from error
        raise CheckpointError(
            f"no LoRA adapter in {directory}: {ADAPTER_CONFIG} and {ADAPTER_WEIGHTS} are needed"
        ) from error
    except CheckpointError:
        raise
    except (ValueError, SafetensorError) as error:
        raise CheckpointError(f"the adapter in {directory} cannot be read: {error}") from error
    if config.get("peft_type") != "LORA":
        raise CheckpointError(f"peft_type {config.get('peft_type')!r} is not supported: only LORA adapters are merged")
    start = config.get("init_lora_weights")
    unsupported = [name for name in UNSUPPORTED if config.get(name)]
    unsupported += [f"init_lora_weights {start!r}"] if isinstance(start, str) and start not in HARMLESS_STARTS else []
    unsupported += [f"bias {config['bias']!r}"] if config.get("bias", "none") != "none" else []
    if unsupported:
        raise CheckpointError(f"the adapter uses {', '.join(unsupported)}: merge it with peft and serve the result")
    if wrong := _value_faults(config):
        raise CheckpointError(f"the adapter's {ADAPTER_CONFIG}: {'; '.join(wrong)}")
    changes: dict[str, LowRank] = {}
    encoder: dict[str, LowRank] = {}
    faults: list[str] = []
    for name in sorted({_module(name) for name in tensors}):
        _read_module(name, config, tensors, shapes, encoder if name.startswith(ENCODER) else changes, faults)
    faults += [
        f"{ENCODER}{name.removeprefix(DECODER)} is adapted otherwise than {name}, but they are one matrix here"
        for name, change in encoder.items()
        if name in changes and not _equal(change, changes[name])
    ]
    changes |= encoder
    if not changes and not faults:
        faults.append(f"{ADAPTER_WEIGHTS} has no LoRA matrices")
    if faults:
        raise CheckpointError(f"the adapter does not fit the model: {shown_faults(faults)}")
    idle = tuple(
        name for name, change in changes.items() if not change.scale or not change.b.any() or not change.a.any()
    )
    base = config.get("base_model_name_or_path")
    return Adapter(changes, idle, base if isinstance(base, str) else None)


def _value_faults(config: Mapping[str, Any]) -> list[str]:
    """Values that no LoRA can have, by name."""

    def is_rank(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0

    def is_alpha(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

    faults = []
    for name, table, fits, words in (
        ("r", "rank_pattern", is_rank, "a whole number above 0"),
        ("lora_alpha", "alpha_pattern", is_alpha, "a number"),
    ):
        own = config.get(table) or {}
        if not isinstance(own, Mapping):
            faults.append(f"{table} is {as_written(own)}, not an object")
            continue
        values = {name: config.get(name)} | {f"{table}.{pattern}": value for pattern, value in own.items()}
        faults += [f"{key} is {as_written(value)}, not {words}" for key, value in values.items() if not fits(value)]
        faults += [f"{table}.{pattern} is no regular expression" for pattern in own if not _compiles(pattern)]
    return faults


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _module(name: str) -> str:
    module = name.removeprefix(PREFIX)
    for suffix in (LORA_A, LORA_B):
        module = module.removesuffix(suffix)
    return module


def _read_module(
    module: str,
    config: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    shapes: Mapping[str, Shape],
    into: dict[str, LowRank],
    faults: list[str],
) -> None:
    target = f"{DECODER}{module.removeprefix(ENCODER)}" if module.startswith(ENCODER) else module
    target += ".weight"
    a, b = (tensors.get(f"{PREFIX}{module}{suffix}") for suffix in (LORA_A, LORA_B))
    shape = shapes.get(target)
    if shape is None or len(shape) != 2 or target.endswith("embed_tokens.weight") or (a is None and b is None):
        faults.append(f"{module} is no matrix of the model that LoRA can change")
        return
    if a is None or b is None:
        there, absent = ("lora_A", "lora_B") if b is None else ("lora_B", "lora_A")
        faults.append(f"{module} has {there} and no {absent}")
        return
    rank = _own(module, config, "r", "rank_pattern")
    if tuple(a.shape) != (rank, shape[1]) or tuple(b.shape) != (shape[0], rank):
        faults.append(
            f"{module} has matrices {tuple(b.shape)} and {tuple(a.shape)} for rank {rank} and a weight {shape}"
        )
    elif not (a.isfinite().all() and b.isfinite().all()):
        faults.append(f"{module} has values that are not finite")
    else:
        into[target] = LowRank(a.float(), b.float(), _scaling(module, rank, config))


def _scaling(module: str, rank: int, config: Mapping[str, Any]) -> float:
    """alpha / r, or alpha / sqrt(r) with rank-stabilised LoRA (Kalajdzievski 2023)."""
    alpha = _own(module, config, "lora_alpha", "alpha_pattern")
    return float(alpha / rank**0.5 if config.get("use_rslora") else alpha / rank)


def _own(module: str, config: Mapping[str, Any], name: str, table: str) -> Any:
    """A module's value of a setting: by peft's rule, the first whose pattern is the end of the module's name."""
    patterns = config.get(table) or {}
    own = next((pattern for pattern in patterns if re.fullmatch(rf"(.*\.)?({pattern})", module)), None)
    return config[name] if own is None else patterns[own]


def _equal(one: LowRank, other: LowRank) -> bool:
    return one.scale == other.scale and torch.equal(one.a, other.a) and torch.equal(one.b, other.b)
