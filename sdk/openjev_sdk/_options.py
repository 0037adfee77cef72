"""Per-request switches of OpenJev hosts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """How an OpenJev host computes one answer. What is None is left to the host; other hosts ignore all of it.

    The switches ride in headers, so the body stays what every System One host takes. A host refuses values
    outside its range with a `BadRequestError`.
    """

    layout: Literal["isolated", "grouped"] | None = None
    """Each question on its own, or all in one canvas."""
    steps: int | None = None
    """Denoising steps, 1 to 8."""
    replicas: int | None = None
    """Noise replicas to average."""
    decimals: int | None = None
    """Decimals of probabilities, scores and confidences, 2 to 6."""
    calibration: Literal["on", "off"] | None = None
    """`off`: probabilities as the model gives them, also where the host has a calibration."""

    def headers(self) -> dict[str, str]:
        """The request headers for what is set."""
        values = {
            "OpenJev-Layout": self.layout,
            "OpenJev-Steps": self.steps,
            "OpenJev-Replicas": self.replicas,
            "OpenJev-Decimals": self.decimals,
            "OpenJev-Calibration": self.calibration,
        }
        return {name: str(value) for name, value in values.items() if value is not None}
