"""Calibration files: temperatures bound to what they were fitted on.

`calibration.json` in a checkpoint's directory: `template`, `template_hash`, `weights_hash`, and `entries`, each with
`layout`, `steps`, `temperatures` per question type, and `fitted_on` (a note for people). A file that belongs to other
weights or another template does not apply, and answers then say `none`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, ValidationError

from openjev_server.calibration.protocol import IDENTITY, Calibration
from openjev_server.calibration.temperature import TemperatureScaling

__all__ = [
    "FILE_NAME",
    "CalibrationError",
    "CalibrationFile",
    "Entry",
    "Temperatures",
    "choose",
    "read_calibrations",
]

FILE_NAME = "calibration.json"


class CalibrationError(ValueError):
    """A calibration file that cannot be read: better no server than probabilities nobody fitted."""


class Temperatures(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    choice: PositiveFloat
    noul: PositiveFloat
    score: PositiveFloat


class Entry(BaseModel):
    """Temperatures for one layout and number of steps."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layout: str
    steps: PositiveInt
    temperatures: Temperatures
    fitted_on: str


class CalibrationFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    template: str
    template_hash: str
    weights_hash: str
    entries: tuple[Entry, ...]


def read_calibrations(
    directory: Path, *, template: str, template_hash: str, weights_hash: str
) -> Mapping[tuple[str, int], Calibration]:
    """The calibrations by (layout, steps) that fit these weights and this template; empty where there are none.

    Raises CalibrationError when the file is there but malformed.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return {}
    try:
        file = CalibrationFile.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise CalibrationError(f"{path.name}: {error}") from error
    if (file.template, file.template_hash, file.weights_hash) != (template, template_hash, weights_hash):
        return {}
    return {(entry.layout, entry.steps): TemperatureScaling(entry.temperatures.model_dump()) for entry in file.entries}


def choose(calibrations: Mapping[tuple[str, int], Calibration], layout: str, steps: int) -> Calibration:
    """The calibration fitted for this layout and number of steps, else the identity."""
    return calibrations.get((layout, steps), IDENTITY)
