"""How far a phase has come, on disk, so that a run which was stopped goes on where it was."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from .backbone import Nano

__all__ = ["FINISHED", "Progress", "load_progress", "save_progress"]

FINISHED = "exact.pt"
"""A phase's weights as training left them, in its folder: there once the phase has ended."""


@dataclass(slots=True)
class Progress:
    step: int = 0
    tokens: int = 0
    """Since the steps that compile."""
    seconds: float = 0.0
    """Trained so far, since the steps that compile."""


def save_progress(path: Path, progress: Progress, model: Nano, optimizer: torch.optim.Optimizer) -> None:
    """Writes beside the file first: a stop in the middle leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    state: dict[str, Any] = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state | {"progress": asdict(progress)}, part)
    part.replace(path)


def load_progress(path: Path, model: Nano, optimizer: torch.optim.Optimizer) -> Progress:
    """Fills both in place; a fresh `Progress` where nothing was saved."""
    if not path.is_file():
        return Progress()
    state = torch.load(path, map_location=model.norm.device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return Progress(**state["progress"])
