"""What a training run does: phases of a plan file, and the settings that are the same for all of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Phase", "Settings", "read_plan"]

_MIXTURES = ("plain", "skills", "skills-2")


@dataclass(frozen=True, slots=True)
class Phase:
    """`start` is `warm` (the warm start file) or `continue` (the weights that the phase before left).

    A phase lasts `seconds` by the clock, so that it ends within a lease, or `millions` of tokens, so that two recipes
    see equally much whatever the machine; exactly one of them is above 0. Raises ValueError otherwise.
    """

    name: str
    seconds: float = 0.0
    millions: float = 0.0
    start: str = "warm"
    everything: bool = False
    mixture: str = "skills"
    rate: float = 5e-4
    fresh_factor: float = 3.0
    quantised_tail: float = 0.1
    """The last share of the phase, in which the weights are rounded as the checkpoint rounds them."""
    conditioned: float = 0.3
    """Share of batches that learn the second step."""
    measure: bool = True

    def __post_init__(self) -> None:
        if (self.seconds > 0) == (self.millions > 0):
            raise ValueError(f"phase {self.name}: either seconds or millions of tokens, above 0")
        if self.start not in ("warm", "continue"):
            raise ValueError(f"phase {self.name}: start is warm or continue, not {self.start}")
        if self.mixture not in _MIXTURES:
            raise ValueError(f"phase {self.name}: mixture is one of {', '.join(_MIXTURES)}, not {self.mixture}")


@dataclass(frozen=True, slots=True)
class Settings:
    prepared: Path
    tokenizer: Path
    warm: Path | None
    out: Path
    device: str = "cuda"
    length: int = 65536
    workers: int = 14
    decay: float = 0.1
    seed: int = 0
    compiled: bool = True
    save_seconds: float = 120.0
    """How often a phase's progress is written, to be taken up again by the next start."""
    limit: int = 0
    """At most so many rows and texts; 0 for all. For tests."""
    max_steps: int = 0


def read_plan(path: Path) -> list[Phase]:
    """The phases of a JSON list. Raises ValueError for a phase that cannot be, or a name that comes twice."""
    phases = [Phase(**raw) for raw in json.loads(path.read_text())]
    names = [phase.name for phase in phases]
    if len(set(names)) < len(names):
        raise ValueError(f"{path.name}: two phases have the same name")
    return phases
