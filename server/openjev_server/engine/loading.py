"""From a checkpoint directory to an engine: device, dtype, tensors, hash."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from openjev_server.engine.assemble import assemble
from openjev_server.engine.backbone import Backbone
from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.protocol import EngineInfo
from openjev_server.engine.quantised import FILE_NAME, read_quantised
from openjev_server.engine.tensors import tensor_shapes
from openjev_server.engine.torch_engine import TorchEngine
from openjev_server.engine.weights import CheckpointError, gather

__all__ = ["choose_device", "choose_dtype", "load_backbone", "load_engine", "read_tensors", "weights_hash"]

DEFAULT_TOKEN_BUDGET = 8192
WHOLE_FILE_BYTES = 1 << 30
SAMPLE_BYTES = 1 << 20
SAMPLE_STRIDE = 1 << 28

Progress = Callable[[str], None]


def load_engine(
    directory: Path,
    *,
    device: str = "auto",
    dtype: str = "auto",
    token_budget: int = DEFAULT_TOKEN_BUDGET,
    request_rows: int = 0,
    cache_bytes: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> TorchEngine:
    """Loads the checkpoint and wraps it (`assemble`). `progress` is called with the name of every tensor placed.

    Raises CheckpointError (tensors), ConfigError (configuration) or FileNotFoundError (no weights there).
    """
    if threads is not None:
        torch.set_num_threads(threads)
    where = choose_device(device)
    kind, _ = choose_dtype(where, dtype)
    backbone = load_backbone(directory, device=where, dtype=kind, progress=progress)
    info = EngineInfo(
        weights_hash=weights_hash(directory),
        dtype=str(kind).removeprefix("torch."),
        device=str(where),
        vocab_size=backbone.config.vocab_size,
        max_positions=backbone.config.max_positions,
    )
    return assemble(backbone, info, token_budget=token_budget, request_rows=request_rows, cache_bytes=cache_bytes)


def load_backbone(
    directory: Path, *, device: torch.device, dtype: torch.dtype, progress: Progress | None = None
) -> Backbone:
    """Reads and checks every tensor; see `load_engine` for what it raises."""
    config = BackboneConfig.from_directory(directory)
    named = read_tensors(directory, tensor_shapes(config))
    return Backbone(config, gather(config, named, device=device, dtype=dtype, progress=progress))


def read_tensors(directory: Path, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields every tensor of the directory's safetensors files, the embedded 4-bit format included.

    Raises CheckpointError naming a file that cannot be read, FileNotFoundError without any.
    """
    quantised = directory / FILE_NAME
    for path in [quantised] if quantised.exists() else _shards(directory):
        try:
            yield from read_quantised(path, shapes) if path == quantised else _plain(path)
        except (KeyError, ValueError, SafetensorError) as error:
            raise CheckpointError(f"{path.name}: {error}") from error


def _plain(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 - safe_open is not a mapping
            yield name, file.get_tensor(name)


def _shards(directory: Path) -> list[Path]:
    paths = sorted(directory.glob("*.safetensors"))
    if not paths:
        raise FileNotFoundError(f"no safetensors weights in {directory}")
    return paths


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


def weights_hash(directory: Path) -> str:
    """12 hex digits over the weight files and config.json. Files over 1 GiB are sampled, 1 MiB in every 256 MiB:
    hashing 50 GB would cost minutes at every start."""
    digest = hashlib.sha256()
    for path in [directory / "config.json", *_shards(directory)]:
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
    return digest.hexdigest()[:12]
