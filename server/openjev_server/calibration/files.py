"""Calibration files: maps of probabilities, bound to what they were fitted on.

A file holds `template`, `template_hash`, either `weights_hash` or `released` (a model and its commit, for numbers that
somebody else recorded), and `entries`, each for one `layout` and number of `steps` with a map per question type; a type
without a map stays uncalibrated. `calibration.json` in a checkpoint's directory is found by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from openjev_server.calibration.kinds import KINDS, answers_of, kind_of
from openjev_server.calibration.scalings import ChoiceScaling, NoulScaling, Scaling, ScoreScaling, normalised
from openjev_server.questions import Question

__all__ = [
    "FILE_NAME",
    "FLOOR",
    "CalibrationError",
    "CalibrationFile",
    "Entry",
    "FileCalibration",
    "Released",
    "Scalings",
    "read_file",
]

FILE_NAME = "calibration.json"
FLOOR = 1e-12
"""Far below any probability that is printed; it keeps an exact zero a (very small) probability."""


class CalibrationError(ValueError):
    """A calibration that cannot be used: better no server than probabilities nobody fitted. One sentence."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Scalings(_Part):
    choice: ChoiceScaling | None = None
    noul: NoulScaling | None = None
    score: ScoreScaling | None = None

    def of(self, kind: str) -> Scaling | None:
        """The map of a question type."""
        found: Scaling | None = getattr(self, kind)
        return found

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(kind for kind in KINDS if self.of(kind) is not None)


class Entry(_Part):
    """What was fitted for one layout and number of steps."""

    layout: str
    steps: PositiveInt
    floor: Annotated[float, Field(gt=0, le=1e-3)] = FLOOR
    """Probabilities below it count as it: what the fitted data could tell apart."""
    scalings: Scalings
    fitted_on: str
    """A note for people."""


class Released(_Part):
    """Published weights, by their hub id and commit."""

    model: str
    revision: str


class CalibrationFile(_Part):
    model: str | None = None
    """What it was fitted with, as answers call it; a note for people."""
    template: str
    template_hash: str
    weights_hash: str | None = None
    released: Released | None = None
    note: str | None = None
    entries: tuple[Entry, ...]

    @model_validator(mode="after")
    def _bound(self) -> Self:
        if (self.weights_hash is None) == (self.released is None):
            raise ValueError("either weights_hash or released says which weights it is for")
        keys = [(entry.layout, entry.steps) for entry in self.entries]
        if len(set(keys)) < len(keys):
            raise ValueError("two entries for the same layout and steps")
        return self


@dataclass(frozen=True)
class FileCalibration:
    """An entry of a file, applied."""

    entry: Entry

    @cached_property
    def hash(self) -> str:
        text = self.entry.model_dump_json(include={"floor", "scalings"})
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    @cached_property
    def kinds(self) -> frozenset[str]:
        return self.entry.scalings.kinds

    def apply(self, question: Question, probabilities: Sequence[float]) -> Sequence[float]:
        """Calibrated probabilities in question order, summing to 1; as they are for a type without a map."""
        scaling = self.entry.scalings.of(kind_of(question))
        if scaling is None:
            return probabilities
        log_p = np.log(np.maximum(np.asarray(probabilities, np.float64), self.entry.floor))
        calibrated: list[float] = normalised(scaling.logits(log_p, answers_of(question))).tolist()
        return calibrated


def read_file(path: Path) -> CalibrationFile:
    """Raises CalibrationError, which names the file and what is wrong."""
    try:
        return CalibrationFile.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CalibrationError(f"Cannot read the calibration {path}: {error.strerror or error}.") from error
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(map(str, entry['loc'])) or 'the file'}: {entry['msg']}"
            for entry in error.errors(include_url=False, include_input=False, include_context=False)[:3]
        )
        raise CalibrationError(f"{path} is no calibration file: {faults}.") from error
