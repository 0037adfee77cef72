"""The engine that the settings ask for, loaded in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from openjev_server.engine.protocol import Engine
from openjev_server.settings import Settings

__all__ = ["CannotLoad", "load_checkpoint"]


class CannotLoad(Exception):
    """There is no usable checkpoint; the message is one sentence for the person who started the server."""


def load_checkpoint(directory: Path, settings: Settings, progress: Callable[[str], None] | None = None) -> Engine:
    """Loads the checkpoint of a directory. `progress` is called with the name of every tensor. Raises CannotLoad."""
    from openjev_server.engine.config import ConfigError
    from openjev_server.engine.loading import load_engine
    from openjev_server.engine.weights import CheckpointError

    try:
        return load_engine(
            directory,
            device=settings.device,
            dtype=settings.dtype,
            token_budget=settings.token_budget,
            threads=settings.threads,
            progress=progress,
        )
    except (CheckpointError, ConfigError, FileNotFoundError) as error:
        raise CannotLoad(f"Cannot load {settings.model}: {error}") from error
