"""The engine that the settings ask for, loaded in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjev_server.bundle import ModelNotFound, resolve_adapter
from openjev_server.settings import Settings

if TYPE_CHECKING:
    from openjev_server.engine.torch_engine import TorchEngine

__all__ = ["CannotLoad", "load_checkpoint", "open_engine"]


class CannotLoad(Exception):
    """There is no usable checkpoint; the message is one sentence for the person who started the server."""


def open_engine(
    directory: Path, settings: Settings, progress: Callable[[str], None] | None = None, **changes: Any
) -> TorchEngine:
    """The checkpoint of a directory as the settings want it; `changes` go to `load_engine`. See there for what it
    raises; ModelNotFound: the adapter is not there."""
    from openjev_server.engine.loading import choose_device, load_engine

    options: dict[str, Any] = {
        "device": settings.device,
        "dtype": settings.dtype,
        "weights": settings.weights,
        "adapter": resolve_adapter(settings.adapter),
        "token_budget": settings.token_budget,
        "request_rows": settings.token_limits(str(choose_device(settings.device))).prompt,
        "cache_bytes": settings.state_cache_bytes,
        "threads": settings.threads,
        "progress": progress,
    }
    return load_engine(directory, **options | changes)


def load_checkpoint(directory: Path, settings: Settings, progress: Callable[[str], None] | None = None) -> TorchEngine:
    """As `open_engine`, with one sentence where that fails. `progress` is called with the name of every tensor.

    Raises CannotLoad.
    """
    from openjev_server.engine.config import ConfigError
    from openjev_server.engine.weights import CheckpointError

    try:
        return open_engine(directory, settings, progress)
    except (CheckpointError, ConfigError, ModelNotFound, OSError) as error:
        raise CannotLoad(f"Cannot load {settings.model}: {error}") from error
