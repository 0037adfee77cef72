"""From a checkpoint directory to an engine: device, dtype, tensors, hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch

from openjev_server.engine.adapter import ADAPTER_CONFIG, Adapter, read_adapter
from openjev_server.engine.assemble import assemble
from openjev_server.engine.backbone import Backbone
from openjev_server.engine.config import BackboneConfig, ConfigError, read_config
from openjev_server.engine.formats import Stored, WeightFormat, stored_format
from openjev_server.engine.int8 import UNAVAILABLE, probe
from openjev_server.engine.matrix import INT4_GROUP
from openjev_server.engine.placing import place, planned_bytes, read_wanted
from openjev_server.engine.plan import Plan, plan_checkpoint
from openjev_server.engine.prepacked import can_prepack
from openjev_server.engine.protocol import EngineInfo
from openjev_server.engine.quantised import FILE_NAME, EmbeddedSource
from openjev_server.engine.sources import ADAPTER_WEIGHTS, Shards, TensorSource, shard_paths
from openjev_server.engine.tensors import SKIPPED_PREFIXES, Shape, tensor_shapes
from openjev_server.engine.torch_engine import TorchEngine
from openjev_server.engine.weights import CheckpointError

__all__ = [
    "Checkpoint",
    "check_memory",
    "choose_device",
    "choose_dtype",
    "choose_weights",
    "load_backbone",
    "load_engine",
    "open_checkpoint",
    "open_source",
    "read_tensors",
    "weights_hash",
]

DEFAULT_TOKEN_BUDGET = 8192
WHOLE_FILE_BYTES = 1 << 30
SAMPLE_BYTES = 1 << 20
SAMPLE_STRIDE = 1 << 28

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose headers have been read and whose values have not."""

    config: BackboneConfig
    stored: Stored
    source: TensorSource
    plan: Plan
    adapter: Adapter | None

    def close(self) -> None:
        self.source.close()


def load_engine(
    directory: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    weights: str = "auto",
    adapter: Path | None = None,
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    request_rows: int = 0,
    cache_bytes: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    fused: bool | None = None,
) -> TorchEngine:
    """Loads the checkpoint and wraps it (`assemble`).

    Args:
        directory: config.json and safetensors files.
        device: `auto`, `cpu`, `cuda`, `cuda:N`.
        dtype: of activations and of weights that are not quantised: `auto`, `float32`, `bfloat16`.
        weights: `auto` (as stored; on a CPU never quantised), `bfloat16` (not quantised), `float8`, `int4`,
            `int8` (on a CPU).
        adapter: a directory with a LoRA adapter to merge.
        token_budget, request_rows, cache_bytes, fused: see `assemble`.
        threads: torch's.
        progress: called with the name of every tensor placed.

    Raises CheckpointError (tensors), ConfigError (configuration) or FileNotFoundError (no weights there).
    """
    if threads is not None:
        torch.set_num_threads(threads)
    where = choose_device(device)
    kind, _ = choose_dtype(where, dtype)
    with closing(open_checkpoint(directory, adapter=adapter)) as checkpoint:
        kept = choose_weights(checkpoint, where, weights)
        prepacked = where.type == "cpu" and kind is torch.float32 and can_prepack()
        backbone = load_backbone(
            checkpoint, device=where, dtype=kind, weights=kept, prepacked=prepacked, progress=progress
        )
        requantised = kept is not WeightFormat.PLAIN and kept.value != checkpoint.stored.value
    info = EngineInfo(
        weights_hash=weights_hash(directory, adapter=adapter, quantised=kept if requantised else None),
        dtype=str(kind).removeprefix("torch.") if kept is WeightFormat.PLAIN else kept.value,
        device=str(where),
        vocab_size=backbone.config.vocab_size,
        max_positions=backbone.config.max_positions,
    )
    return assemble(
        backbone, info, token_budget=token_budget, request_rows=request_rows, cache_bytes=cache_bytes, fused=fused
    )


def open_checkpoint(directory: Path, *, adapter: Path | None = None) -> Checkpoint:
    """Reads config.json, every header, and the adapter. What is wrong with the tensors is in `plan.faults`.

    Raises:
        ConfigError: the configuration or the format of the weights is not supported, or not the released model's.
        CheckpointError: a file cannot be read or is incomplete, or the adapter does not fit.
        FileNotFoundError: there is no config.json, or there are no weights.
    """
    raw = read_config(directory)
    config = BackboneConfig.from_dict(raw)
    stored = stored_format(raw)
    shapes = tensor_shapes(config)
    merged = None if adapter is None else read_adapter(adapter, shapes)
    source = open_source(directory, shapes)
    return Checkpoint(config, stored, source, plan_checkpoint(config, source.headers, stored), merged)


def open_source(directory: Path, shapes: Mapping[str, Shape]) -> TensorSource:
    """The tensors of the directory's files: the embedded 4-bit format, else plain safetensors. Raises as above."""
    embedded = directory / FILE_NAME
    return EmbeddedSource(embedded, shapes) if embedded.exists() else Shards(shard_paths(directory))


def load_backbone(
    checkpoint: Checkpoint,
    *,
    device: torch.device,
    dtype: torch.dtype,
    weights: WeightFormat = WeightFormat.PLAIN,
    prepacked: bool = False,
    progress: Progress | None = None,
) -> Backbone:
    """Reads, checks and places every tensor, plain matrices in oneDNN's order if `prepacked`.

    Raises CheckpointError naming what is wrong.
    """
    if checkpoint.plan.faults:
        raise CheckpointError(checkpoint.plan.faults)
    if device.type == "cuda" and checkpoint.source.maps:
        needed = planned_bytes(checkpoint.config, checkpoint.plan, weights, dtype)
        check_memory(needed, torch.cuda.mem_get_info(device)[0], str(device))
    placed = place(
        checkpoint.config,
        checkpoint.plan,
        checkpoint.source,
        device=device,
        dtype=dtype,
        weights=weights,
        prepacked=prepacked,
        adapter=checkpoint.adapter,
        progress=progress,
    )
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what conversions took: the state cache is sized by the memory that is free
    return Backbone(checkpoint.config, placed)


def check_memory(needed: int, free: int, device: str) -> None:
    """Raises CheckpointError where the weights alone do not fit: found out before 50 GB have been read."""
    if needed > free:
        raise CheckpointError(
            f"the weights take {needed / 2**30:.1f} GiB and {device} has {free / 2**30:.1f} GiB free: "
            "OPENJEV_WEIGHTS=float8 halves most of them, int4 leaves a good quarter"
        )


def read_tensors(checkpoint: Checkpoint) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every tensor of the model by its released name, plain, on the CPU, experts fused and the adapter merged,
    and then the vision tensors that the files have. Raises CheckpointError."""
    if checkpoint.plan.faults:
        raise CheckpointError(checkpoint.plan.faults)
    for wanted in checkpoint.plan.wanted:
        yield wanted.name, read_wanted(checkpoint.source, wanted, checkpoint.adapter)
    for name in checkpoint.source.headers:
        if name.startswith(SKIPPED_PREFIXES):
            yield name, checkpoint.source.get(name)


def choose_device(name: str) -> torch.device:
    """`auto` is the first CUDA device, else the CPU."""
    if name == "auto":
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def choose_dtype(device: torch.device, name: str) -> tuple[torch.dtype, str]:
    """The dtype to compute in, and why. `auto`: bf16 on CUDA and on CPUs that multiply it in hardware, else fp32.

    On a CPU without such instructions bf16 matrix products are emulated: 15 against 93 GFLOP/s measured for
    [725, 576] x [576, 1536] on two AVX2 cores.
    """
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name], "as set"
    if device.type == "cuda":
        return torch.bfloat16, "CUDA"
    if torch.cpu._is_amx_tile_supported():
        return torch.bfloat16, "the CPU has AMX tiles"
    return torch.float32, "the CPU has no AMX tiles: bf16 products would be emulated"


def choose_weights(checkpoint: Checkpoint, device: torch.device, name: str) -> WeightFormat:
    """How matrices are held. `auto` keeps what the checkpoint has, but on a CPU, which has no FP8 products, plain.

    Raises ConfigError when the model's widths do not divide into groups of 4-bit weights, or for 8-bit integers
    where they are not multiplied.
    """
    if name == "auto":
        keep = checkpoint.stored is Stored.FLOAT8 and device.type == "cuda"
        return WeightFormat.FLOAT8 if keep else WeightFormat.PLAIN
    chosen = WeightFormat.PLAIN if name == "bfloat16" else WeightFormat(name)
    if chosen is WeightFormat.INT8 and (device.type != "cpu" or probe() is None):
        raise ConfigError(UNAVAILABLE)
    config = checkpoint.config
    inputs = {config.hidden_size, config.intermediate_size, config.expert_size}
    inputs |= {config.heads * layer.head_dim for layer in config.layers}
    if chosen is WeightFormat.INT4 and (odd := sorted(width for width in inputs if width % INT4_GROUP)):
        raise ConfigError(f"int4 weights come in groups of {INT4_GROUP} inputs, and this model has {odd[0]}")
    return chosen


def weights_hash(directory: Path, *, adapter: Path | None = None, quantised: WeightFormat | None = None) -> str:
    """12 hex digits over the weight files and config.json, the adapter's files, and the format when the weights are
    quantised on loading: those are other weights, and calibrations are bound to this hash. Files over 1 GiB are
    sampled, 1 MiB in every 256 MiB: hashing 50 GB would cost minutes at every start.
    """
    digest = hashlib.sha256()
    embedded = directory / FILE_NAME
    paths = [directory / "config.json", *([embedded] if embedded.exists() else shard_paths(directory))]
    if adapter is not None:
        paths += [adapter / ADAPTER_CONFIG, adapter / ADAPTER_WEIGHTS]
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}:".encode())
        with path.open("rb") as file:
            if size <= WHOLE_FILE_BYTES:
                while chunk := file.read(SAMPLE_BYTES):
                    digest.update(chunk)
                continue
            for offset in range(0, size, SAMPLE_STRIDE):
                file.seek(offset)
                digest.update(file.read(SAMPLE_BYTES))
    if quantised is not None:
        digest.update(f"quantised:{quantised.value}".encode())
    return digest.hexdigest()[:12]
