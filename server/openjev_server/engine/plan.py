"""Which tensor of a checkpoint goes where, decided from its headers before any value is read.

Every tensor is consumed, a tied copy of one that is, or skipped by a listed prefix; anything else is a fault that
names it. Experts may be stored fused ([experts, out, in], as released) or one by one (`experts.7.up_proj.weight`, as
compressed-tensors checkpoints have them).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.formats import Stored
from openjev_server.engine.sources import TensorHeader
from openjev_server.engine.tensors import (
    DECODER,
    ENCODER,
    SKIPPED_PREFIXES,
    TIED_HEAD,
    Shape,
    tensor_shapes,
)

__all__ = ["Part", "Plan", "Wanted", "plan_checkpoint"]

FLOATING = frozenset({"F32", "F16", "BF16"})
FLOAT8 = "F8_E4M3"
EMBEDDED = frozenset({"Q4", "Q8"})
"""What the embedded checkpoint's format calls its headers."""
ONE_EXPERT = re.compile(r"(.*\.experts)\.\d+\..*")
FUSED_EXPERTS = re.compile(r"(?P<experts>.*\.experts)\.(?P<kind>gate_up_proj|down_proj)")
PARTS_OF = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of the checkpoint, and the rows that it fills."""

    name: str
    scale: str | None
    """The tensor with its FP8 scales."""
    expert: int | None
    """The expert it belongs to, where experts are stored one by one."""
    start: int
    """Its first row."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A tensor of the model, as released, and what it is made of."""

    name: str
    shape: Shape
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    wanted: tuple[Wanted, ...]
    ties: tuple[tuple[str, str], ...]
    """(copy, original): tensors that must equal another one."""
    skipped: Mapping[str, int]
    """Prefix -> how many tensors were skipped for it."""
    dtypes: Mapping[str, int]
    """dtype -> bytes of the tensors that are read."""
    faults: tuple[str, ...]

    @property
    def consumed(self) -> int:
        """How many tensors of the files are read, scales included."""
        return sum(1 + (part.scale is not None) for tensor in self.wanted for part in tensor.parts)


def plan_checkpoint(config: BackboneConfig, headers: Mapping[str, TensorHeader], stored: Stored) -> Plan:
    """Finds the parts of every tensor of the model. Never raises: what is wrong is in `faults`."""
    faults: list[str] = []
    wanted = []
    used: set[str] = set()
    separate = frozenset(match[1] for name in headers if (match := ONE_EXPERT.fullmatch(name)))
    for name, shape in tensor_shapes(config).items():
        parts = _parts(name, shape, headers, separate)
        wanted.append(Wanted(name, shape, tuple(part for part, _ in parts)))
        for part, expected in parts:
            used |= {part.name} | ({part.scale} if part.scale else set())
            faults += _part_faults(part, expected, headers, stored)
    ties, skipped = [], Counter[str]()
    for name in sorted(headers.keys() - used):
        prefix = next((prefix for prefix in SKIPPED_PREFIXES if name.startswith(prefix)), None)
        original = _original(name)
        if prefix is not None:
            skipped[prefix] += 1
        elif original in used & headers.keys() and headers[name].shape == headers[original].shape:
            ties.append((name, original))
        else:
            faults.append(f"{name} is not part of the model")
    dtypes = Counter[str]()
    for name in used & headers.keys():
        dtypes[headers[name].dtype] += headers[name].nbytes
    return Plan(tuple(wanted), tuple(ties), dict(skipped), dict(dtypes), tuple(faults))


def _parts(
    name: str, shape: Shape, headers: Mapping[str, TensorHeader], separate: frozenset[str]
) -> list[tuple[Part, Shape]]:
    """The parts of a tensor, each with the shape that it must have; `separate` are the layers' experts that are stored
    one by one."""
    fused = FUSED_EXPERTS.fullmatch(name)
    if fused is None or name in headers or fused["experts"] not in separate:
        return [(Part(name, _scale(name, headers), None, 0), shape)]
    experts, rows, columns = shape
    kinds = PARTS_OF[fused["kind"]]
    height = rows // len(kinds)
    return [
        (Part(own, _scale(own, headers), expert, place * height), (height, columns))
        for expert in range(experts)
        for place, kind in enumerate(kinds)
        for own in [f"{fused['experts']}.{expert}.{kind}.weight"]
    ]


def _scale(name: str, headers: Mapping[str, TensorHeader]) -> str | None:
    """The scales of an FP8 tensor: `X.weight_scale` beside `X.weight`; for fused experts `X_scale` or
    `X.weight_scale`, an assumption, since no published checkpoint has such."""
    if name not in headers or headers[name].dtype != FLOAT8:
        return None
    own = f"{name}_scale"
    return own if name.endswith(".weight") or own in headers else f"{name}.weight_scale"


def _part_faults(part: Part, expected: Shape, headers: Mapping[str, TensorHeader], stored: Stored) -> list[str]:
    header = headers.get(part.name)
    if header is None:
        return [f"{part.name} is missing"]
    if header.shape != expected:
        return [f"{part.name} has shape {header.shape}, not {expected}"]
    if header.dtype == FLOAT8:
        if stored is not Stored.FLOAT8:
            return [f"{part.name} is FP8, but config.json has no quantization_config"]
        scale = headers.get(part.scale or "")
        if scale is None:
            return [f"{part.scale} is missing: {part.name} is FP8"]
        if scale.shape not in (expected[:-1], (*expected[:-1], 1)) or scale.dtype not in FLOATING:
            return [f"{part.scale} is {scale.dtype} of shape {scale.shape}, not one scale for each of {expected[:-1]}"]
        return []
    if header.dtype not in FLOATING | EMBEDDED:
        return [f"{part.name} is {header.dtype}, which is not supported"]
    return []


def _original(name: str) -> str:
    """The tensor that this one would be a copy of, if it is one at all: the head of the embedding, the encoder's
    layers of the decoder's."""
    if name == TIED_HEAD:
        return f"{DECODER}embed_tokens.weight"
    return DECODER + name.removeprefix(ENCODER) if name.startswith(ENCODER) else ""
