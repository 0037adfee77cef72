"""The embedded checkpoint's file format: safetensors with 4-bit and 8-bit weights.

For a tensor NAME of a known shape (`tensors.tensor_shapes`):

- `NAME.q4` uint8 [groups, 16]: groups of 32 consecutive values of the flattened tensor, two a byte (even index in the
  low nibble, odd index in the high one); `NAME.scale` and `NAME.min` float16 [groups]; value = q * scale + min.
- `NAME.q8` int8 [rows, columns] with `NAME.scale` float16 [rows, 1]; value = q * scale.
- `NAME` itself, float16, as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

__all__ = ["FILE_NAME", "GROUP", "quantise", "read_quantised", "write_quantised"]

FILE_NAME = "model.q4.safetensors"
GROUP = 32


def read_quantised(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields (name, float32 tensor), one at a time, so that no more than one is held dequantised.

    Raises KeyError naming a part that is missing, ValueError naming a tensor whose size does not fit its shape.
    """
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        for name in sorted(names):
            stem, _, kind = name.rpartition(".")
            if kind == "q4":
                scale, low = file.get_tensor(f"{stem}.scale"), file.get_tensor(f"{stem}.min")
                yield stem, _shaped(stem, _dequantise_groups(file.get_tensor(name), scale, low), shapes)
            elif kind == "q8":
                yield stem, _shaped(stem, file.get_tensor(name).float() * file.get_tensor(f"{stem}.scale"), shapes)
            elif not (kind in ("scale", "min") and {f"{stem}.q4", f"{stem}.q8"} & names):
                yield name, file.get_tensor(name).float()


def _dequantise_groups(packed: torch.Tensor, scale: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    values = torch.empty(packed.shape[0], GROUP // 2, 2)
    values[..., 0] = packed & 15
    values[..., 1] = packed >> 4
    return values.view(-1, GROUP).mul_(scale.float().view(-1, 1)).add_(low.float().view(-1, 1))


def _shaped(name: str, tensor: torch.Tensor, shapes: Mapping[str, tuple[int, ...]]) -> torch.Tensor:
    shape = shapes.get(name)
    if shape is None:
        return tensor  # an unknown name: the loader refuses it by name
    if tensor.numel() != torch.Size(shape).numel():
        raise ValueError(f"{name}: {tensor.numel()} values do not fill the shape {shape}")
    return tensor.view(shape)


def quantise(name: str, tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """The parts that stand for a tensor: matrices in 4 bits, embeddings in 8, everything small as float16."""
    tensor = tensor.detach().float().cpu()
    if name.endswith("embed_tokens.weight"):
        scale = (tensor.abs().amax(1, keepdim=True) / 127).half().clamp_min(6e-8)
        return {f"{name}.q8": (tensor / scale.float()).round().clamp(-127, 127).to(torch.int8), f"{name}.scale": scale}
    if tensor.ndim < 2 or tensor.numel() % GROUP or "router." in name:
        return {name: tensor.half().contiguous()}
    groups = tensor.reshape(-1, GROUP)
    low = groups.amin(1, keepdim=True).half()
    # 6e-8 is the smallest positive half: a constant group must not divide by zero.
    scale = ((groups.amax(1, keepdim=True) - low.float()) / 15).half().clamp_min(6e-8)
    levels = ((groups - low.float()) / scale.float()).round().clamp(0, 15).to(torch.uint8).view(-1, GROUP // 2, 2)
    packed = levels[..., 0] | (levels[..., 1] << 4)
    return {f"{name}.q4": packed.contiguous(), f"{name}.scale": scale.view(-1), f"{name}.min": low.view(-1)}


def write_quantised(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Writes all tensors in this format, with string metadata (origin, training run)."""
    parts: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        parts |= quantise(name, tensor)
    save_file(parts, path, metadata={"format": "pt", **metadata})
