"""A checkpoint directory and what the front needs from it: an id, a tokenizer, a template. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from openjev_server.calibration import Calibration, read_calibrations
from openjev_server.canvas.chat import ChatTemplateError, read_chat_template
from openjev_server.canvas.template import Template
from openjev_server.canvas.templates import UnknownTemplate, template_for
from openjev_server.canvas.tokenizer import TextTokenizer

__all__ = ["EMBEDDED_MODEL", "ModelBundle", "ModelNotFound", "load_bundle", "model_id", "resolve_model"]

EMBEDDED_MODEL = "nano"
EMBEDDED_DIRECTORY = Path(__file__).parent / "models" / EMBEDDED_MODEL
EMBEDDED_ID = "openjev-nano-1"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
TOKENIZER_FILE = "tokenizer.json"
HUB_FILES = ["*.json", "*.safetensors", "*.jinja"]


class ModelNotFound(ValueError):
    """The model's name leads to no checkpoint; the message is for the person who typed it."""


@dataclass(frozen=True, slots=True)
class ModelBundle:
    """One checkpoint, seen from the front."""

    id: str
    """What answers call it, `openjev-<name>`."""
    directory: Path
    tokenizer: TextTokenizer
    template: Template

    def calibrations(self, weights_hash: str) -> Mapping[tuple[str, int], Calibration]:
        """What was fitted for these weights under this template, by (layout, steps). Raises CalibrationError."""
        return read_calibrations(
            self.directory, template=self.template.id, template_hash=self.template.hash, weights_hash=weights_hash
        )


def resolve_model(name: str) -> Path:
    """The directory of `nano`, of a path, or of a hub id (downloaded on first use).

    Raises:
        ModelNotFound: there is no such directory, or the hub does not give it.
    """
    if name == EMBEDDED_MODEL:
        return EMBEDDED_DIRECTORY
    path = Path(name).expanduser()
    if path.is_dir():
        return path.resolve()
    if HUB_ID.fullmatch(name):
        return _download(name)
    raise ModelNotFound(
        f"No model {name!r}: it is neither {EMBEDDED_MODEL!r}, nor a directory, nor a hub id OWNER/NAME."
    )


def _download(hub_id: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=HUB_FILES))
    except Exception as error:
        raise ModelNotFound(f"No directory {hub_id!r}, and it cannot be fetched from the hub: {error}") from error


def model_id(directory: Path) -> str:
    """`openjev-nano-1` for the embedded checkpoint, otherwise `openjev-` and the directory's or repository's name."""
    directory = directory.resolve()
    if directory == EMBEDDED_DIRECTORY.resolve():
        return EMBEDDED_ID
    if directory.parent.name == "snapshots" and directory.parent.parent.name.startswith("models--"):
        return f"openjev-{directory.parent.parent.name.rpartition('--')[2]}"
    return f"openjev-{directory.name}"


def load_bundle(directory: Path, *, template: str = "auto") -> ModelBundle:
    """Reads the tokenizer and picks the template: the named one, or with `auto` what fits the tokenizer. The
    checkpoint's own chat template, where it has one, writes the turns.

    Raises:
        ModelNotFound: the directory has no tokenizer, or no such template fits it.
    """
    if not (directory / TOKENIZER_FILE).is_file():
        raise ModelNotFound(f"No {TOKENIZER_FILE} in {directory}: not a checkpoint directory.")
    tokenizer = TextTokenizer.from_directory(directory)
    try:
        chosen = template_for(tokenizer, template, chat=read_chat_template(directory))
    except (UnknownTemplate, ChatTemplateError) as error:
        raise ModelNotFound(f"{directory.name}: {error}") from error
    return ModelBundle(model_id(directory), directory, tokenizer, chosen)
