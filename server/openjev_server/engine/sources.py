"""The tensors of a checkpoint directory: their headers all at once, their values one at a time.

Only safetensors: a pickle can run code. Files are mapped, and mappings count as this process's memory, so a file is
closed and opened again after `WINDOW_BYTES` read from it: no shard is ever held whole.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from openjev_server.engine.weights import CheckpointError

__all__ = [
    "ADAPTER_WEIGHTS",
    "InMemory",
    "Shards",
    "TensorHeader",
    "TensorSource",
    "read_header",
    "shard_paths",
    "stray_shards",
]

INDEX = "model.safetensors.index.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
WINDOW_BYTES = 1 << 30
AHEAD_BYTES = 1 << 28
LONGEST_HEADER = 100_000_000
"""The format's own limit, in bytes."""
REFUSED = ("*.gguf", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.npz")


@dataclass(frozen=True, slots=True)
class TensorHeader:
    shape: tuple[int, ...]
    dtype: str
    """As safetensors calls it: `BF16`, `F32`, `F16`, `F8_E4M3`, ..."""
    nbytes: int
    file: str
    offset: int
    """Where it begins in its file, in bytes."""


class TensorSource(Protocol):
    """Named tensors that are read one by one."""

    maps: bool
    """Whether tensors are views of files: to be copied, and let go before many more are asked for."""

    @property
    def headers(self) -> Mapping[str, TensorHeader]: ...

    def get(self, name: str) -> torch.Tensor: ...

    def close(self) -> None: ...


class InMemory:
    """Tensors that lie in no file."""

    maps = False

    def __init__(self, named: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._tensors = dict(named)
        dtypes = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float8_e4m3fn: "F8_E4M3"}
        self._headers = {
            name: TensorHeader(tuple(t.shape), dtypes[t.dtype], t.numel() * t.element_size(), "", place)
            for place, (name, t) in enumerate(self._tensors.items())
        }

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        return self._headers

    def get(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def close(self) -> None:
        """Lets go of the tensors."""
        self._tensors.clear()


class Shards:
    """Plain safetensors files."""

    maps = True

    def __init__(self, paths: list[Path]) -> None:
        """Reads every header. Raises CheckpointError naming what is truncated, unreadable or in two files."""
        self._paths = {path.name: path for path in paths}
        self._headers: dict[str, TensorHeader] = {}
        self._open: dict[str, Any] = {}
        self._read = 0
        self._asked: dict[str, int] = {}
        faults: list[str] = []
        for path in paths:
            try:
                headers = read_header(path)
            except CheckpointError as error:
                faults += error.faults
                continue
            for name in headers.keys() & self._headers.keys():
                faults.append(f"{name} is in {self._headers[name].file} and in {path.name}")
            self._headers |= headers
        if faults:
            raise CheckpointError(faults)

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        return self._headers

    def get(self, name: str) -> torch.Tensor:
        header = self._headers[name]
        if self._read + header.nbytes > WINDOW_BYTES:
            self.close()
        self._read += header.nbytes
        self._ask_ahead(header)
        try:
            if header.file not in self._open:
                self._open[header.file] = safe_open(self._paths[header.file], framework="pt")
            tensor: torch.Tensor = self._open[header.file].get_tensor(name)
        except (SafetensorError, KeyError, OSError) as error:
            raise CheckpointError([f"{name} cannot be read from {header.file}: {error}"]) from error
        return tensor

    def _ask_ahead(self, header: TensorHeader) -> None:
        """Has the system read on ahead of the page faults, which alone would fetch a slow disk's file piecemeal:
        0.4 to 0.9 GB/s became 1.0 on one virtual disk."""
        stop = header.offset + header.nbytes
        asked = self._asked.get(header.file, 0)
        if stop <= asked or not hasattr(os, "posix_fadvise"):
            return
        start = max(header.offset, asked)
        length = max(stop - start, AHEAD_BYTES)
        with self._paths[header.file].open("rb") as file:
            os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_WILLNEED)
        self._asked[header.file] = start + length

    def close(self) -> None:
        """Lets go of the files; `get` opens them again."""
        self._open.clear()
        self._read = 0


def shard_paths(directory: Path) -> list[Path]:
    """The weight files: those of the index where there is one, else every safetensors file that is no adapter.

    Raises:
        CheckpointError: a file of the index is missing or lacks a tensor, or the weights are in another format.
        FileNotFoundError: there are no weights.
    """
    index = directory / INDEX
    if index.is_file():
        try:
            placed: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError([f"{INDEX} cannot be read: {error!r}"]) from error
        return _indexed(directory, placed)
    paths = sorted(path for path in directory.glob("*.safetensors") if path.name != ADAPTER_WEIGHTS)
    if paths:
        return paths
    for pattern in REFUSED:
        if found := sorted(directory.glob(pattern)):
            raise CheckpointError(
                f"{directory.name} has its weights as {found[0].name}: only safetensors files are read (a pickle can "
                "run code, and GGUF is another engine's format); take the safetensors release of the model"
            )
    raise FileNotFoundError(f"no safetensors weights in {directory}")


def stray_shards(directory: Path) -> list[str]:
    """Safetensors files beside an index that does not name them: nothing reads them. Raises as `shard_paths`."""
    if not (directory / INDEX).is_file():
        return []
    known = {path.name for path in shard_paths(directory)} | {ADAPTER_WEIGHTS}
    return sorted(path.name for path in directory.glob("*.safetensors") if path.name not in known)


def _indexed(directory: Path, placed: Mapping[str, str]) -> list[Path]:
    faults = []
    for file in sorted(set(placed.values())):
        path = directory / file
        inside = [name for name in placed if placed[name] == file]
        if Path(file).name != file or not path.is_file():
            shown = ", ".join(inside[:3]) + (f" and {len(inside) - 3} more" if len(inside) > 3 else "")
            faults.append(f"{file} is missing, and with it {shown}")
            continue
        try:
            there = read_header(path)
        except CheckpointError as error:
            faults += error.faults
            continue
        faults += [f"{name} is missing from {file}, where the index puts it" for name in inside if name not in there]
    if faults:
        raise CheckpointError(faults)
    return [directory / file for file in sorted(set(placed.values()))]


def read_header(path: Path) -> dict[str, TensorHeader]:
    """Name -> header of every tensor in a safetensors file (format: huggingface.co/docs/safetensors).

    Raises CheckpointError naming the tensors that the file is too short for, or the file when it is none.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > LONGEST_HEADER:
                raise ValueError("its header is too long")
            raw = json.loads(file.read(length))
        raw.pop("__metadata__", None)
        headers = {
            name: TensorHeader(
                shape=tuple(entry["shape"]),
                dtype=entry["dtype"],
                nbytes=entry["data_offsets"][1] - entry["data_offsets"][0],
                file=path.name,
                offset=8 + length + entry["data_offsets"][0],
            )
            for name, entry in raw.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise CheckpointError([f"{path.name} is no safetensors file, or is truncated: {error}"]) from error
    cut = [name for name, header in headers.items() if header.offset + header.nbytes > size]
    if cut:
        raise CheckpointError([f"{name} is cut off: {path.name} is truncated" for name in cut])
    return headers
