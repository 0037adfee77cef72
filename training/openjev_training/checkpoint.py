"""A checkpoint directory as the server reads it: config.json, tokenizer.json, model.q4.safetensors."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from openjev_server.engine.quantised import FILE_NAME, write_quantised
from torch import Tensor

from .architecture import Architecture

__all__ = ["write_checkpoint"]


def write_checkpoint(
    folder: Path, tensors: Mapping[str, Tensor], arch: Architecture, base: Path, metadata: Mapping[str, str]
) -> None:
    """Writes all three files; tokenizer and the configuration's other keys come from the directory `base`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((base / "config.json").read_text())
    config["text_config"] |= arch.text_config()
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    shutil.copyfile(base / "tokenizer.json", folder / "tokenizer.json")
    write_quantised(folder / FILE_NAME, tensors, metadata)
