"""What a calibration is to the rest of the server: a map of one answer's probabilities to better ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from openjev_server.calibration.kinds import kind_of
from openjev_server.questions import Question

__all__ = ["IDENTITY", "UNCALIBRATED", "Calibration", "Identity", "mark"]

UNCALIBRATED = "none"


class Calibration(Protocol):
    """Turns the read-out probabilities of one question into calibrated ones."""

    @property
    def hash(self) -> str:
        """12 hex digits, or `none`."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The question types that it changes."""
        ...

    def apply(self, question: Question, probabilities: Sequence[float]) -> Sequence[float]:
        """Calibrated probabilities, one per answer in question order, summing to 1; of another type as they are."""
        ...


class Identity:
    """Leaves every probability as it was read."""

    hash = UNCALIBRATED
    kinds: frozenset[str] = frozenset()

    def apply(self, question: Question, probabilities: Sequence[float]) -> Sequence[float]:
        """The same probabilities."""
        return probabilities


IDENTITY: Calibration = Identity()


def mark(calibration: Calibration, questions: Iterable[Question]) -> str:
    """What headers print for answers to these questions: the hash; `HASH:noul` where other questions than yes/no were
    asked and only those are calibrated; `none` where no question is."""
    asked = {kind_of(question) for question in questions}
    changed = asked & calibration.kinds
    if not changed:
        return UNCALIBRATED
    return calibration.hash if changed == asked else f"{calibration.hash}:{'+'.join(sorted(changed))}"
