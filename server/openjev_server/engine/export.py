"""A checkpoint as a plain transformers directory, which `DiffusionGemmaForBlockDiffusion.from_pretrained` opens."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from openjev_server.engine.config import read_config
from openjev_server.engine.loading import open_checkpoint, read_tensors, weights_hash
from openjev_server.engine.tensors import SKIPPED_PREFIXES

__all__ = ["ExportError", "export", "vision_shapes"]

ARCHITECTURE = "DiffusionGemmaForBlockDiffusion"
COMPANIONS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "self_check.json", "MODEL_CARD.md")
"""Copied as they are where the source has them."""
CALIBRATION = "calibration.json"


class ExportError(ValueError):
    """The directory cannot be written; the message says why."""


def export(
    source: Path,
    target: Path,
    *,
    dtype: torch.dtype = torch.float32,
    adapter: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> int:
    """Writes config.json, model.safetensors, the tokenizer and the model card, and returns the bytes of the weights.

    FP8 weights are written in `dtype` too, and a LoRA adapter is merged.

    Only names that transformers saves are written; it ties the encoder and the head to the decoder by itself. Vision
    weights that the source lacks become zeros: the class insists on having them, and text never reaches them. All is
    held in memory once in `dtype`. The target appears when it is complete, or not at all.

    Raises:
        ExportError: the target is there and not empty.
        CheckpointError: the source's tensors do not fit its configuration.
        ConfigError: the configuration is not supported.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{target} exists and is not an empty directory")
    raw = read_config(source)
    raw.pop("quantization_config", None)
    tensors: dict[str, torch.Tensor] = {}
    with closing(open_checkpoint(source, adapter=adapter)) as checkpoint:
        for name, tensor in read_tensors(checkpoint):
            tensors[name] = tensor.to(dtype, copy=True).contiguous()
            if progress is not None and not name.startswith(SKIPPED_PREFIXES):
                progress(name)
    tensors |= {
        name: torch.zeros(shape, dtype=dtype) for name, shape in vision_shapes(raw).items() if name not in tensors
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as scratch:
        unfinished = Path(scratch) / "export"
        unfinished.mkdir()
        weights = unfinished / "model.safetensors"
        save_file(tensors, weights, metadata={"format": "pt"})
        config = {**raw, "architectures": [ARCHITECTURE], "dtype": str(dtype).removeprefix("torch.")}
        (unfinished / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        for name in COMPANIONS:
            if (source / name).is_file():
                shutil.copyfile(source / name, unfinished / name)
        if adapter is None:
            _carry_calibration(source, unfinished)
        weights.chmod((unfinished / "config.json").stat().st_mode)  # safetensors writes for the owner alone
        size = weights.stat().st_size
        unfinished.replace(target)
    return size


def _carry_calibration(source: Path, target: Path) -> None:
    """The source's calibration, bound to the exported weights: they are the same numbers in another file."""
    path = source / CALIBRATION
    if not path.is_file():
        return
    calibration = json.loads(path.read_text(encoding="utf-8"))
    if calibration.get("weights_hash") == weights_hash(source):
        calibration["weights_hash"] = weights_hash(target)
        (target / CALIBRATION).write_text(json.dumps(calibration, indent=1) + "\n", encoding="utf-8")


def vision_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the vision tensors, which only transformers knows."""
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

    with torch.device("meta"):
        model = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**config))
    return {name: tuple(t.shape) for name, t in model.state_dict().items() if name.startswith(SKIPPED_PREFIXES)}
