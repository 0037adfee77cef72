"""A random checkpoint in the released layout: `python -m benchmarks.write_checkpoint DIR --like released|small`.

Sharded bfloat16 safetensors with an index (or one FP8 file as llm-compressor writes it, `--weights float8`), config,
a small tokenizer with Gemma's control tokens, and a chat template. Tensors are made one at a time on the GPU, if there
is one, and written as they come: 47 GiB need no more memory than the largest tensor. The same seed writes the same
files on the same kind of device.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.export import vision_shapes
from openjev_server.engine.matrix import to_float8
from openjev_server.engine.tensors import tensor_shapes

from benchmarks.released import STD, configuration
from benchmarks.text import build_tokenizer

__all__ = ["CHAT_TEMPLATE", "FLOAT8_CONFIG", "entries", "main", "write_checkpoint"]

SHARD_BYTES = 5_000_000_000
CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{{- '<|turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' -}}
{{- message['content'] | trim -}}
{{- '<turn|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|turn>model\\n' -}}
{%- endif -%}
"""
TOKENIZER_CONFIG = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "pad_token": "<pad>",
    "tokenizer_class": "PreTrainedTokenizerFast",
}
FLOAT8_CONFIG: Mapping[str, Any] = {
    "config_groups": {
        "group_0": {
            "format": "float-quantized",
            "input_activations": {
                "dynamic": True,
                "num_bits": 8,
                "strategy": "token",
                "symmetric": True,
                "type": "float",
            },
            "targets": ["Linear"],
            "weights": {"dynamic": False, "num_bits": 8, "strategy": "channel", "symmetric": True, "type": "float"},
        }
    },
    "format": "float-quantized",
    "quant_method": "compressed-tensors",
    "quantization_status": "compressed",
}
SAFETENSORS_DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float8_e4m3fn: "F8_E4M3"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor that is yet to be made."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


def write_checkpoint(
    directory: Path,
    raw: Mapping[str, Any],
    *,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    float8: bool = False,
    vision: bool = False,
    shard_bytes: int = SHARD_BYTES,
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> int:
    """Writes everything; returns the bytes of the weights.

    Args:
        directory: made if need be.
        raw: config.json.
        device: where tensors are drawn.
        dtype: of what is not FP8.
        float8: attention, dense MLP and experts as float8_e4m3fn with a scale per output channel, each expert apart.
        vision: also the (random) tensors of the configuration's vision tower.
        shard_bytes: after how many a new file begins.
        seed: of the values.
        say: called with a line per file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    raw = dict(raw) | {"dtype": str(dtype).removeprefix("torch.")}
    if float8:
        raw["quantization_config"] = dict(FLOAT8_CONFIG)
    (directory / "config.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    (directory / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG, indent=2) + "\n", encoding="utf-8")
    build_tokenizer().save(str(directory / "tokenizer.json"))
    shapes = tensor_shapes(BackboneConfig.from_dict(raw)) | (vision_shapes(raw) if vision else {})
    draw = partial(_draw, generator=torch.Generator(device).manual_seed(seed), device=device, dtype=dtype)
    groups = [group for name, shape in shapes.items() for group in _groups(name, shape, dtype, draw, float8=float8)]
    shards = _shards(groups, shard_bytes)
    placed = {}
    total = 0
    for number, shard in enumerate(shards):
        name = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        total += _write_shard(directory / name, shard)
        placed |= {entry.name: name for group in shard for entry in group.entries}
        say(f"{name}: {total / 1e9:.1f} GB so far")
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))}
        text = json.dumps(index, indent=2) + "\n"
        (directory / "model.safetensors.index.json").write_text(text, encoding="utf-8")
    return total


def entries(raw: Mapping[str, Any], *, float8: bool = False, dtype: torch.dtype = torch.bfloat16) -> list[Entry]:
    """The text tensors that a checkpoint of this configuration has."""
    shapes = tensor_shapes(BackboneConfig.from_dict(raw))
    draw = partial(_draw, generator=torch.Generator(), device=torch.device("cpu"), dtype=dtype)
    groups = (group for name, shape in shapes.items() for group in _groups(name, shape, dtype, draw, float8=float8))
    return [entry for group in groups for entry in group.entries]


@dataclass(frozen=True, slots=True)
class _Group:
    """Tensors that are made together, in this order."""

    entries: tuple[Entry, ...]
    make: Callable[[], tuple[torch.Tensor, ...]]


def _groups(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, draw: Callable[..., torch.Tensor], *, float8: bool
) -> Iterator[_Group]:
    quantised = float8 and (".self_attn." in name or ".mlp." in name or ".experts." in name) and "vision" not in name
    if not quantised or len(shape) == 1:
        yield _Group((Entry(name, shape, dtype),), lambda: (draw(name, shape),))
    elif len(shape) == 2:
        yield _float8_group(name, shape, dtype, draw)
    else:
        experts, rows, columns = shape
        stem, _, kind = name.rpartition(".")
        kinds = ("gate_proj", "up_proj") if kind == "gate_up_proj" else ("down_proj",)
        for expert in range(experts):
            for part in kinds:
                yield _float8_group(f"{stem}.{expert}.{part}.weight", (rows // len(kinds), columns), dtype, draw)


def _float8_group(name: str, shape: tuple[int, ...], dtype: torch.dtype, draw: Callable[..., torch.Tensor]) -> _Group:
    def make() -> tuple[torch.Tensor, ...]:
        matrix = to_float8(draw(name, shape))
        return matrix.values, matrix.scale[:, None].to(dtype)

    return _Group((Entry(name, shape, torch.float8_e4m3fn), Entry(f"{name}_scale", (shape[0], 1), dtype)), make)


def _draw(
    name: str, shape: tuple[int, ...], *, generator: torch.Generator, device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    """Matrices N(0, 0.02), norms and scalars 1: activations stay finite through any number of layers."""
    tensor = torch.empty(shape, device=device, dtype=dtype)
    return tensor.fill_(1.0) if tensor.ndim == 1 else tensor.normal_(0.0, STD, generator=generator)


def _shards(groups: list[_Group], shard_bytes: int) -> list[list[_Group]]:
    shards: list[list[_Group]] = [[]]
    held = 0
    for group in groups:
        size = sum(entry.nbytes for entry in group.entries)
        if held and held + size > shard_bytes:
            shards.append([])
            held = 0
        shards[-1].append(group)
        held += size
    return shards


def _write_shard(path: Path, groups: list[_Group]) -> int:
    """The file format of safetensors: length of the header, header, data. Its own writer wants a whole shard in
    memory."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for group in groups:
        for entry in group.entries:
            header[entry.name] = {
                "dtype": SAFETENSORS_DTYPES[entry.dtype],
                "shape": list(entry.shape),
                "data_offsets": [offset, offset + entry.nbytes],
            }
            offset += entry.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for group in groups:
            for tensor in group.make():
                file.write(tensor.contiguous().cpu().view(torch.uint8).numpy().data)
    return offset


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--like", choices=("released", "small"), default="released")
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    parser.add_argument("--experts", type=int, help="fewer experts")
    parser.add_argument("--weights", choices=("bfloat16", "float8"), default="bfloat16")
    parser.add_argument("--vision", action="store_true", help="also the tensors of a small vision tower")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shard-gb", type=float, default=SHARD_BYTES / 1e9)
    chosen = parser.parse_args(arguments)
    raw = configuration(tiny=chosen.like == "small", layers=chosen.layers, experts=chosen.experts)
    started = time.perf_counter()
    size = write_checkpoint(
        chosen.directory,
        raw,
        device=torch.device(chosen.device),
        float8=chosen.weights == "float8",
        vision=chosen.vision,
        # One file, as published.
        shard_bytes=sys.maxsize if chosen.weights == "float8" else round(chosen.shard_gb * 1e9),
        seed=chosen.seed,
        say=partial(print, flush=True),
    )
    print(f"{size / 2**30:.2f} GiB in {time.perf_counter() - started:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
