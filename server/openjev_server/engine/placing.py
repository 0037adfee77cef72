"""From named tensors to the backbone's weights on the device, a piece of a tensor at a time.

A matrix that is fused from several is allocated once and filled part by part, so the device never holds two copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from openjev_server.engine.adapter import Adapter
from openjev_server.engine.builders import Builder, as_plain, builder
from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.formats import WeightFormat
from openjev_server.engine.matrix import INT4_GROUP, Float8Matrix, Matrix, dequantised
from openjev_server.engine.plan import Part, Plan, Wanted
from openjev_server.engine.sources import TensorSource
from openjev_server.engine.tensors import DECODER, ENCODER_LAYERS, LAYER_NORMS, Shape, layer_name
from openjev_server.engine.values import ValueCheck
from openjev_server.engine.weights import BackboneWeights, CheckpointError, LayerWeights, SelfConditioningWeights

__all__ = ["place", "planned_bytes", "read_wanted"]

PIECE_VALUES = 1 << 26
"""How many values of a tensor are on their way at once: 256 MiB in float32, a few times over while quantising."""
LAYER_MATRICES = {
    "query": ("self_attn.q_proj.weight",),
    "key_value": ("self_attn.k_proj.weight", "self_attn.v_proj.weight"),
    "output": ("self_attn.o_proj.weight",),
    "gate_up": ("mlp.gate_proj.weight", "mlp.up_proj.weight"),
    "down": ("mlp.down_proj.weight",),
    "expert_gate_up": ("experts.gate_up_proj",),
    "expert_down": ("experts.down_proj",),
}
"""Matrix of `LayerWeights` -> the tensors stacked in it."""
PLAIN_BESIDE_INT8 = frozenset({"query", "key_value"})
"""What stays plain beside 8-bit integers: a seventh of the products, and a third of what they would lose (0.037 nats
of a log-probability on the embedded checkpoint, 0.024 without them)."""
FIRST_INT8_LAYER = 2
"""So do the first two layers of 13, for half of what is lost then (benchmarks/NOTES.md)."""
CONDITIONING = f"{DECODER}self_conditioning."


@dataclass(frozen=True, slots=True)
class _Target:
    """Where a tensor of the checkpoint goes."""

    key: str
    """The tensor on the device."""
    start: int
    """Its first row there."""


def place(
    config: BackboneConfig,
    plan: Plan,
    source: TensorSource,
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: WeightFormat = WeightFormat.PLAIN,
    prepacked: bool = False,
    adapter: Adapter | None = None,
    progress: Callable[[str], None] | None = None,
) -> BackboneWeights:
    """Reads every tensor of the plan once, in the order of the files.

    Args:
        dtype: of what is not quantised; norms and scalars are float32.
        weights: how attention, dense MLP and experts are held. FP8 values that the checkpoint has are kept as they are
            with `FLOAT8`.
        prepacked: of these, the plain ones in oneDNN's order: float32, on a CPU.
        progress: called with the name of every finished tensor.

    Raises CheckpointError naming every tensor whose values are not finite or all zero, and copies that differ from
    their original.
    """
    targets, shapes = _targets(config, plan)
    builders: dict[str, Builder] = {}
    quantised = {layer_name(index, matrix) for index, matrix in _quantised(config, weights)}
    layers = range(len(config.layers))
    ordered = {layer_name(i, matrix) for i in layers for matrix in LAYER_MATRICES} if prepacked else set()
    faults: list[str] = []
    left = {tensor.name: len(tensor.parts) for tensor in plan.wanted}
    for tensor, part in _reading_order(plan, source):
        target = targets[tensor.name]
        if target.key not in builders:
            kept = weights if target.key in quantised else WeightFormat.PLAIN
            may_keep = device.type != "cpu" or not source.maps
            builders[target.key] = builder(
                shapes[target.key], kept, device, dtype, prepacked=target.key in ordered, may_keep=may_keep
            )
        check = ValueCheck(tensor, part, may_be_zero=_may_be_zero(config, tensor.name))
        for place, piece in _pieces(source, tensor, part, device, adapter, check):
            builders[target.key].put(_shifted(place, target.start), piece)
        faults += check.faults()
        left[tensor.name] -= 1
        if progress is not None and not left[tensor.name]:
            progress(tensor.name)
    faults += [
        f"{copy} is not tied to {original}: their values differ"
        for copy, original in plan.ties
        if not torch.equal(source.get(copy), source.get(original))
    ]
    if faults:
        raise CheckpointError(faults)
    return _assemble(config, {key: builder.finished() for key, builder in builders.items()})


def planned_bytes(config: BackboneConfig, plan: Plan, weights: WeightFormat, dtype: torch.dtype) -> int:
    """What the placed tensors will take on the device."""
    chosen = {layer_name(i, part) for i, matrix in _quantised(config, weights) for part in LAYER_MATRICES[matrix]}
    total = 0.0
    for tensor in plan.wanted:
        values = torch.Size(tensor.shape).numel()
        kept = weights if tensor.name in chosen else WeightFormat.PLAIN
        if len(tensor.shape) == 1:
            total += 4 * values
        elif kept is WeightFormat.PLAIN:
            total += dtype.itemsize * values
        elif kept in (WeightFormat.FLOAT8, WeightFormat.INT8):
            total += values * (1 + 4 / tensor.shape[-1])
        else:
            total += values * (0.5 + 2 * dtype.itemsize / INT4_GROUP)
    return round(total)


def read_wanted(source: TensorSource, tensor: Wanted, adapter: Adapter | None) -> torch.Tensor:
    """A tensor of the model, whole and plain, on the CPU: in its stored dtype, or float32 where it is computed.

    Raises CheckpointError when its values are not finite.
    """
    device = torch.device("cpu")
    whole: torch.Tensor | None = None
    for part in tensor.parts:
        check = ValueCheck(tensor, part, may_be_zero=True)
        for place, piece in _pieces(source, tensor, part, device, adapter, check):
            plain = as_plain(piece)
            whole = torch.empty(tensor.shape, dtype=plain.dtype) if whole is None else whole
            whole[place].copy_(plain)
        if faults := check.faults():
            raise CheckpointError(faults)
    assert whole is not None
    return whole


def _quantised(config: BackboneConfig, weights: WeightFormat) -> set[tuple[int, str]]:
    """Layer and matrix of what a quantised format holds."""
    every = {(index, matrix) for index in range(len(config.layers)) for matrix in LAYER_MATRICES}
    if weights is not WeightFormat.INT8:
        return every
    return {(i, matrix) for i, matrix in every if i >= FIRST_INT8_LAYER and matrix not in PLAIN_BESIDE_INT8}


def _reading_order(plan: Plan, source: TensorSource) -> list[tuple[Wanted, Part]]:
    headers = source.headers
    pairs = [(tensor, part) for tensor in plan.wanted for part in tensor.parts]
    return sorted(pairs, key=lambda pair: (headers[pair[1].name].file, headers[pair[1].name].offset))


def _may_be_zero(config: BackboneConfig, name: str) -> bool:
    """A router has nothing to choose from one expert, so its matrix may be anything (the embedded checkpoint's are
    zero). No other tensor of a trained model is zero: norms multiply, and a zero matrix switches a branch off."""
    return config.experts == 1 and name.endswith(".router.proj.weight")


def _pieces(
    source: TensorSource,
    tensor: Wanted,
    part: Part,
    device: torch.device,
    adapter: Adapter | None,
    check: ValueCheck,
) -> Iterator[tuple[tuple[slice, ...], Matrix]]:
    """A part's values on the device, checked and merged with the adapter, each piece with its place in the tensor."""
    values = source.get(part.name)
    scale = None if part.scale is None else source.get(part.scale).view(values.shape[:-1]).float()
    height = max(1, PIECE_VALUES // (values.numel() // len(values))) if source.maps else len(values)
    for start in range(0, len(values), height):
        stop = min(start + height, len(values))
        moved = values[start:stop].to(device)
        piece: Matrix = moved if scale is None else Float8Matrix(moved, scale[start:stop].to(device))
        check.see(piece)
        delta = None if adapter is None else adapter.delta(tensor.name, slice(start, stop), device)
        if delta is not None:
            piece = dequantised(piece, torch.float32).add_(delta)
        rows = slice(part.start + start, part.start + stop)
        yield (rows,) if part.expert is None else (slice(part.expert, part.expert + 1), rows), piece


def _shifted(place: tuple[slice, ...], start: int) -> tuple[slice, ...]:
    return (slice(place[0].start + start, place[0].stop + start), *place[1:]) if start else place


def _targets(config: BackboneConfig, plan: Plan) -> tuple[dict[str, _Target], dict[str, Shape]]:
    """Tensor -> where it goes, and the shape of everything that tensors go to."""
    sizes = {tensor.name: tensor.shape for tensor in plan.wanted}
    targets = {name: _Target(name, 0) for name in sizes}
    shapes = dict(sizes)
    stacks = {f"{CONDITIONING}gate_up": [f"{CONDITIONING}{part}_proj.weight" for part in ("gate", "up")]}
    for index in range(len(config.layers)):
        for matrix, parts in LAYER_MATRICES.items():
            stacks[layer_name(index, matrix)] = [layer_name(index, part) for part in parts]
    for key, names in stacks.items():
        start = 0
        for name in names:
            if name in sizes:  # a full layer has no values of its own
                targets[name] = _Target(key, start)
                start += sizes[name][0]
        shapes[key] = (start, *sizes[names[0]][1:])
    return targets, shapes


def _assemble(config: BackboneConfig, built: Mapping[str, Matrix]) -> BackboneWeights:
    def plain(name: str) -> torch.Tensor:
        tensor = built[name]
        assert isinstance(tensor, torch.Tensor)
        return tensor

    def layer(index: int) -> LayerWeights:
        def of(tensor: str) -> torch.Tensor:
            return plain(layer_name(index, tensor))

        return LayerWeights(
            **{matrix: built[layer_name(index, matrix)] for matrix in LAYER_MATRICES},
            query_norm=of("self_attn.q_norm.weight"),
            key_norm=of("self_attn.k_norm.weight"),
            norms={norm: of(f"{norm}.weight") for norm in LAYER_NORMS},
            router=of("router.proj.weight"),
            router_scale=of("router.scale"),
            expert_scale=of("router.per_expert_scale"),
            encoder_scalar=float(plain(f"{ENCODER_LAYERS}{index}.layer_scalar")),
            decoder_scalar=float(of("layer_scalar")),
        )

    return BackboneWeights(
        embedding=plain(f"{DECODER}embed_tokens.weight"),
        norm=plain(f"{DECODER}norm.weight"),
        self_conditioning=SelfConditioningWeights(
            norm=plain(f"{CONDITIONING}pre_norm.weight"),
            gate_up=plain(f"{CONDITIONING}gate_up"),
            down=plain(f"{CONDITIONING}down_proj.weight"),
        ),
        layers=tuple(layer(index) for index in range(len(config.layers))),
    )
