"""What each value of a `text_config` may be. A value beside these would fail late, deep in the arithmetic, or not at
all and give wrong answers; here it is named before a weight is read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["as_written", "value_faults"]

MOST = 2**31 - 1
"""Sizes are 32-bit in kernels."""
MOST_LAYERS = 4096
SHOWN = 60
"""Characters of a value that a message quotes."""


@dataclass(frozen=True, slots=True)
class _Kind:
    fits: Callable[[Any], bool]
    words: str
    may_be_null: bool = False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object, most: int = MOST) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


COUNT = _Kind(_is_count, f"a whole number from 1 to {MOST}")
LAYERS = _Kind(lambda value: _is_count(value, MOST_LAYERS), f"a whole number from 1 to {MOST_LAYERS}")
POSITIVE = _Kind(lambda value: _is_number(value) and 0 < value < math.inf, "a number above 0")
SHARE = _Kind(lambda value: _is_number(value) and 0 < value <= 1, "a number above 0 and at most 1")
NAME = _Kind(lambda value: isinstance(value, str), "a string")
OPTIONAL_COUNT = _Kind(_is_count, COUNT.words, may_be_null=True)
OPTIONAL_LIST = _Kind(lambda value: isinstance(value, list), "a list", may_be_null=True)
OPTIONAL_OBJECT = _Kind(lambda value: isinstance(value, Mapping), "an object", may_be_null=True)

KINDS: Mapping[str, _Kind] = {
    "final_logit_softcapping": POSITIVE,
    "global_head_dim": COUNT,
    "head_dim": COUNT,
    "hidden_activation": NAME,
    "hidden_size": COUNT,
    "intermediate_size": COUNT,
    "layer_types": OPTIONAL_LIST,
    "max_position_embeddings": COUNT,
    "moe_intermediate_size": COUNT,
    "num_attention_heads": COUNT,
    "num_experts": COUNT,
    "num_global_key_value_heads": OPTIONAL_COUNT,
    "num_hidden_layers": LAYERS,
    "num_key_value_heads": COUNT,
    "per_layer_config": OPTIONAL_OBJECT,
    "rms_norm_eps": POSITIVE,
    "rope_parameters": OPTIONAL_OBJECT,
    "sliding_window": COUNT,
    "top_k_experts": COUNT,
    "vocab_size": COUNT,
}
ROPE_KINDS: Mapping[str, _Kind] = {
    "factor": POSITIVE,
    "partial_rotary_factor": SHARE,
    "rope_theta": POSITIVE,
    "rope_type": NAME,
}
"""Of one kind of attention, in `rope_parameters`."""
LAYER_KINDS: Mapping[str, _Kind] = {"head_dim": COUNT, "num_key_value_heads": COUNT}
"""Of one layer, in `per_layer_config`."""


def value_faults(text: Mapping[str, Any]) -> list[str]:
    """Every value that is present and cannot be, with its name, as it is written in the file."""
    faults = list(_faults("", text, KINDS))
    for table, kinds in (("rope_parameters", ROPE_KINDS), ("per_layer_config", LAYER_KINDS)):
        entries = text.get(table)
        for name, entry in entries.items() if isinstance(entries, Mapping) else ():
            if isinstance(entry, Mapping):
                faults += _faults(f"{table}.{name}.", entry, kinds)
            else:
                faults.append(f"{table}.{name} is {as_written(entry)}, not an object")
    return faults


def as_written(value: object) -> str:
    """A value of a parsed JSON file as the file has it, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _faults(prefix: str, values: Mapping[str, Any], kinds: Mapping[str, _Kind]) -> Iterator[str]:
    for name, kind in kinds.items():
        if name not in values or (kind.may_be_null and values[name] is None) or kind.fits(values[name]):
            continue
        yield f"{prefix}{name} is {as_written(values[name])}, not {kind.words}"
