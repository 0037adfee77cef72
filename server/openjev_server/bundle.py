"""A checkpoint directory and what the front needs from it: an id, a tokenizer, a template. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openjev_server.calibration import Calibrations, Running, find_calibrations
from openjev_server.calibration.files import Released
from openjev_server.calibration.find import AUTO
from openjev_server.canvas.chat import ChatTemplateError, read_chat_template
from openjev_server.canvas.template import Template
from openjev_server.canvas.templates import UnknownTemplate, shipped_hash, template_for
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.engine.config import BackboneConfig, ConfigError
from openjev_server.engine.protocol import EngineInfo
from openjev_server.hub import HUB_ID, HubError, commit_of, download, repository_of

__all__ = [
    "EMBEDDED_MODEL",
    "ModelBundle",
    "ModelNotFound",
    "load_bundle",
    "model_id",
    "resolve_adapter",
    "resolve_model",
]

EMBEDDED_MODEL = "nano"
EMBEDDED_DIRECTORY = Path(__file__).parent / "models" / EMBEDDED_MODEL
EMBEDDED_ID = "openjev-nano-1"
TOKENIZER_FILE = "tokenizer.json"
UNQUANTISED = frozenset({"bfloat16", "float32"})


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

    def calibrations(self, info: EngineInfo, *, setting: str = AUTO, adapter: str | None = None) -> Calibrations:
        """What applies to the loaded weights under this template; see `find_calibrations` for `setting`.

        `adapter` is what was merged into them, if anything. Raises CalibrationError.
        """
        repository, commit = repository_of(self.directory), commit_of(self.directory)
        unchanged = adapter is None and info.dtype in UNQUANTISED
        released = Released(model=repository, revision=commit) if repository and commit and unchanged else None
        running = Running(
            self.template.id, self.template.hash, info.weights_hash, shipped_hash(self.template), released
        )
        return find_calibrations(setting, self.directory, running)


def resolve_model(name: str, *, revision: str = "auto") -> Path:
    """The directory of `nano`, of a path, or of a hub id (downloaded on first use; see `hub.download`).

    Raises:
        ModelNotFound: there is no such directory, or the hub does not give it.
    """
    if name == EMBEDDED_MODEL:
        return EMBEDDED_DIRECTORY
    path = Path(name).expanduser()
    if path.is_dir():
        return path.resolve()
    if not HUB_ID.fullmatch(name):
        raise ModelNotFound(
            f"No model {name!r}: it is neither {EMBEDDED_MODEL!r}, nor a directory, nor a hub id OWNER/NAME."
        )
    try:
        return download(name, revision)
    except HubError as error:
        raise ModelNotFound(str(error)) from error


def resolve_adapter(name: str | None) -> Path | None:
    """The directory of a LoRA adapter: a path or a hub id; None for None. Raises ModelNotFound."""
    if name is None:
        return None
    path = Path(name).expanduser()
    if not path.is_dir() and not HUB_ID.fullmatch(name):
        raise ModelNotFound(f"No adapter {name!r}: it is neither a directory nor a hub id OWNER/NAME.")
    return resolve_model(name)


def model_id(directory: Path) -> str:
    """`openjev-nano-1` for the embedded checkpoint, otherwise `openjev-` and the directory's or repository's name."""
    directory = directory.resolve()
    if directory == EMBEDDED_DIRECTORY.resolve():
        return EMBEDDED_ID
    if commit_of(directory) is not None:
        return f"openjev-{directory.parent.parent.name.rpartition('--')[2]}"
    return f"openjev-{directory.name}"


def load_bundle(directory: Path, *, template: str = "auto") -> ModelBundle:
    """Reads the tokenizer and picks the template: the named one, or with `auto` what fits the tokenizer. The
    checkpoint's own chat template, where it has one, writes the turns.

    Raises:
        ModelNotFound: the directory has no tokenizer that can be read, it has ids that the model lacks, or no such
            template fits it.
    """
    if not (directory / TOKENIZER_FILE).is_file():
        raise ModelNotFound(f"No {TOKENIZER_FILE} in {directory}: not a checkpoint directory.")
    try:
        tokenizer = TextTokenizer.from_directory(directory)
    except Exception as error:  # what `tokenizers` raises has no class of its own
        raise ModelNotFound(f"{TOKENIZER_FILE} in {directory} cannot be read: {error}") from error
    _check_vocabulary(directory, tokenizer)
    try:
        chosen = template_for(tokenizer, template, chat=read_chat_template(directory))
    except (UnknownTemplate, ChatTemplateError) as error:
        raise ModelNotFound(f"{directory.name}: {error}") from error
    return ModelBundle(model_id(directory), directory, tokenizer, chosen)


def _check_vocabulary(directory: Path, tokenizer: TextTokenizer) -> None:
    """A tokenizer of another model would ask for embeddings that are not there."""
    try:
        size = BackboneConfig.from_directory(directory).vocab_size
    except (ConfigError, OSError, ValueError):
        return  # what is wrong with config.json, the loader says
    if tokenizer.vocab_size > size:
        raise ModelNotFound(
            f"{TOKENIZER_FILE} in {directory} has token ids up to {tokenizer.vocab_size - 1}, the model has only "
            f"{size}: it is another model's tokenizer."
        )
