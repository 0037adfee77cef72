"""The embedded checkpoint's file format: safetensors with 4-bit and 8-bit weights.

For a tensor NAME of a known shape (`tensors.tensor_shapes`):

- `NAME.q4` uint8 [groups, 16]: groups of 32 consecutive values of the flattened tensor, two a byte (even index in the
  low nibble, odd index in the high one); `NAME.scale` and `NAME.min` float16 [groups]; value = q * scale + min.
- `NAME.q8` int8 [rows, columns] with `NAME.scale` float16 [rows, 1]; value = q * scale.
- `NAME` itself, float16, as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from openjev_server.engine.sources import TensorHeader, read_header
from openjev_server.engine.weights import CheckpointError

__all__ = ["FILE_NAME", "GROUP", "EmbeddedSource", "group_levels", "quantise", "row_levels", "write_quantised"]

FILE_NAME = "model.q4.safetensors"
GROUP = 32
SMALLEST_HALF = 6e-8
"""A constant group must not divide by zero."""


class EmbeddedSource:
    """Reads this format as float32 tensors under the names that transformers uses."""

    maps = False

    def __init__(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Raises CheckpointError naming the file when it cannot be read, or a tensor with a part missing."""
        self._path = path
        parts = read_header(path)
        self._headers = {}
        faults = []
        for name, part in parts.items():
            stem, _, kind = name.rpartition(".")
            if kind in ("q4", "q8"):
                needs = ("scale", "min") if kind == "q4" else ("scale",)
                faults += [f"{stem}.{need} is missing" for need in needs if f"{stem}.{need}" not in parts]
                shape = part.shape if kind == "q8" else _unpacked_shape(part.shape, shapes.get(stem))
                self._headers[stem] = replace(part, shape=shape, dtype=kind.upper())
            elif not (kind in ("scale", "min") and {f"{stem}.q4", f"{stem}.q8"} & parts.keys()):
                self._headers[name] = part
        if faults:
            raise CheckpointError(faults)
        self._file: Any = safe_open(path, framework="pt")

    @property
    def headers(self) -> Mapping[str, TensorHeader]:
        return self._headers

    def get(self, name: str) -> torch.Tensor:
        """float32, in the shape of its header."""
        kind = self._headers[name].dtype
        if kind == "Q4":
            packed, scale, low = (self._file.get_tensor(f"{name}.{part}") for part in ("q4", "scale", "min"))
            return _dequantise_groups(packed, scale, low).view(self._headers[name].shape)
        if kind == "Q8":
            levels: torch.Tensor = self._file.get_tensor(f"{name}.q8")
            scale = self._file.get_tensor(f"{name}.scale")
            return levels.float().mul_(scale)
        tensor: torch.Tensor = self._file.get_tensor(name)
        return tensor.float()

    def close(self) -> None:
        del self._file


def _unpacked_shape(packed: tuple[int, ...], shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """The tensor's own shape where its values fill it; otherwise what there is, for the loader to refuse by name."""
    values = packed[0] * GROUP
    return shape if shape is not None and torch.Size(shape).numel() == values else (values,)


def _dequantise_groups(packed: torch.Tensor, scale: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    values = torch.empty(packed.shape[0], GROUP // 2, 2)
    values[..., 0] = packed & 15
    values[..., 1] = packed >> 4
    return values.view(-1, GROUP).mul_(scale.float().view(-1, 1)).add_(low.float().view(-1, 1))


def group_levels(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """4 bits: levels 0..15 [groups, 32], and the half scale and half minimum [groups, 1] of each group.

    The value of a level is level * scale + minimum.
    """
    groups = tensor.reshape(-1, GROUP).float()
    low = groups.amin(1, keepdim=True).half()
    scale = ((groups.amax(1, keepdim=True) - low.float()) / 15).half().clamp_min(SMALLEST_HALF)
    return ((groups - low.float()) / scale.float()).round().clamp(0, 15), scale, low


def row_levels(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """8 bits: levels -127..127 [rows, columns], and the half scale [rows, 1] of each row; value = level * scale."""
    rows = tensor.float()
    scale = (rows.abs().amax(1, keepdim=True) / 127).half().clamp_min(SMALLEST_HALF)
    return (rows / scale.float()).round().clamp(-127, 127), scale


def quantise(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The parts that stand for a tensor: matrices in 4 bits, embeddings in 8, everything small as float16."""
    tensor = tensor.detach().float().cpu()
    if name.endswith("embed_tokens.weight"):
        levels, scale = row_levels(tensor)
        return {f"{name}.q8": levels.to(torch.int8), f"{name}.scale": scale}
    if tensor.ndim < 2 or tensor.numel() % GROUP or "router." in name:
        return {name: tensor.half().contiguous()}
    levels, scale, low = group_levels(tensor)
    pairs = levels.to(torch.uint8).view(-1, GROUP // 2, 2)
    packed = pairs[..., 0] | (pairs[..., 1] << 4)
    return {f"{name}.q4": packed.contiguous(), f"{name}.scale": scale.view(-1), f"{name}.min": low.view(-1)}


def write_quantised(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Writes all tensors in this format, with string metadata (origin, training run)."""
    parts: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        parts |= quantise(name, tensor)
    save_file(parts, path, metadata={"format": "pt", **metadata})
