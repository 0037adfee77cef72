"""Which calibration a server applies: a file that it was told, the checkpoint's own, or one that OpenJev ships."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from openjev_server.calibration.files import (
    FILE_NAME,
    CalibrationError,
    CalibrationFile,
    FileCalibration,
    Released,
    read_file,
)
from openjev_server.calibration.protocol import IDENTITY, UNCALIBRATED, Calibration

__all__ = ["AUTO", "OFF", "SHIPPED", "Calibrations", "Running", "find_calibrations", "refuse_other_template"]

AUTO, OFF = "auto", "off"
SHIPPED = Path(__file__).parent / "shipped"
RECORDED = "fitted on the seed's recorded numbers, not on this server's"


@dataclass(frozen=True, slots=True)
class Running:
    """What is loaded, as far as a calibration cares."""

    template: str
    template_hash: str
    weights_hash: str
    shipped_template_hash: str | None = None
    """Of this template before a checkpoint's own chat markup was put in; None for a template that OpenJev lacks."""
    released: Released | None = None
    """Set when these are a published model's unchanged weights: of that commit, not quantised, without an adapter."""

    def binding(self) -> dict[str, str]:
        """What a calibration file of its own would be bound to."""
        return {"template": self.template, "template_hash": self.template_hash, "weights_hash": self.weights_hash}


@dataclass(frozen=True, slots=True)
class Calibrations:
    """What is applied, by (layout, steps), and why."""

    entries: Mapping[tuple[str, int], FileCalibration] = field(default_factory=dict)
    source: str | None = None
    """The file; None where there is none that applies."""
    reason: str | None = None
    """Why there is none, for people."""
    note: str | None = None
    running: Running | None = None

    def choose(self, layout: str, steps: int) -> Calibration:
        """The calibration fitted for this layout and number of steps, else the identity."""
        return self.entries.get((layout, steps), IDENTITY)

    def listing(self) -> dict[str, Any]:
        """For `/v1/models` and `doctor`: which layouts, steps and types are calibrated, or why none is."""
        bound = {} if self.running is None else self.running.binding()
        if not self.entries:
            reason = self.reason or "no calibration was fitted for these weights and this template"
            return {"status": UNCALIBRATED, "reason": reason, **bound}
        entries = [
            {
                "layout": layout,
                "steps": steps,
                "types": sorted(calibration.kinds),
                "hash": calibration.hash,
                "fitted_on": calibration.entry.fitted_on,
            }
            for (layout, steps), calibration in sorted(self.entries.items())
        ]
        note = {} if self.note is None else {"note": self.note}
        return {"status": "fitted", "source": self.source, **note, **bound, "entries": entries}


def find_calibrations(setting: str, directory: Path, running: Running) -> Calibrations:
    """What applies to the running weights and template.

    Args:
        setting: `auto`, `off`, or a file.
        directory: of the checkpoint; its `calibration.json` comes before what OpenJev ships.
        running: what is loaded.

    Raises:
        CalibrationError: the named file, or the checkpoint's own, cannot be read; the named file was fitted for other
            weights or another template.
    """
    if setting == OFF:
        return Calibrations(reason="turned off (OPENJEV_CALIBRATION=off)", running=running)
    if setting != AUTO:
        path = Path(setting).expanduser()
        file = read_file(path)
        if (why := _mismatch(file, running)) is not None:
            raise CalibrationError(f"The calibration {path} {why}.")
        return _of(file, str(path), running)
    own = directory / FILE_NAME
    reason = None
    if own.is_file():
        file = read_file(own)
        reason = _mismatch(file, running)
        if reason is None:
            return _of(file, f"{FILE_NAME} of the checkpoint", running)
        reason = f"the checkpoint's {FILE_NAME} {reason}"
    for path in sorted(SHIPPED.glob("*.json")):
        file = read_file(path)
        if _mismatch(file, running) is None:
            return _of(file, f"shipped with OpenJev: {path.name}", running)
    return Calibrations(reason=reason, running=running)


def refuse_other_template(setting: str, template: str, template_hash: str) -> None:
    """What can be refused before weights are loaded: a named file that cannot be read, or is for another template.

    Raises CalibrationError.
    """
    if setting in (AUTO, OFF):
        return
    path = Path(setting).expanduser()
    file = read_file(path)
    if file.released is None and (file.template, file.template_hash) != (template, template_hash):
        raise CalibrationError(f"The calibration {path} {_other_template(file, template, template_hash)}.")


def _of(file: CalibrationFile, source: str, running: Running) -> Calibrations:
    entries = {(entry.layout, entry.steps): FileCalibration(entry) for entry in file.entries}
    note = RECORDED if file.released is not None else file.note
    return Calibrations(entries, source, note=note, running=running)


def _mismatch(file: CalibrationFile, running: Running) -> str | None:
    expected = running.template_hash if file.released is None else running.shipped_template_hash
    if (file.template, file.template_hash) != (running.template, expected):
        return _other_template(file, running.template, running.template_hash)
    if file.released is not None:
        if file.released == running.released:
            return None
        wanted = f"{file.released.model} at {file.released.revision}"
        return f"was fitted for {wanted}, unchanged, and this server runs weights {running.weights_hash}"
    if file.weights_hash != running.weights_hash:
        return f"was fitted for weights {file.weights_hash}, and this server runs weights {running.weights_hash}"
    return None


def _other_template(file: CalibrationFile, template: str, template_hash: str) -> str:
    return (
        f"was fitted for template {file.template} ({file.template_hash}), and this server runs {template} "
        f"({template_hash})"
    )
