"""What a calibration is to the rest of the server: a map of one answer's probabilities to better ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from openjev_server.questions import Question

__all__ = ["IDENTITY", "Calibration", "Identity"]


class Calibration(Protocol):
    """Turns the read-out probabilities of one question into calibrated ones."""

    @property
    def hash(self) -> str:
        """What the fingerprint prints: 12 hex digits, or `none`."""
        ...

    def apply(self, question: Question, probabilities: Sequence[float]) -> Sequence[float]:
        """Calibrated probabilities, one per answer in question order, summing to 1."""
        ...


class Identity:
    """Leaves every probability as it was read."""

    hash = "none"

    def apply(self, question: Question, probabilities: Sequence[float]) -> Sequence[float]:
        """The same probabilities."""
        return probabilities


IDENTITY: Calibration = Identity()
