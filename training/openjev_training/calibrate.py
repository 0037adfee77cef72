"""Temperatures of a checkpoint, fitted on tasks that its training never saw.

On tasks it was trained on a model's confidence is nearly right, so temperatures fitted there would leave it
overconfident on a new question, which is what users ask. Every task has the same weight. The report's error is that of
leaving one task out: each task is scaled with the temperature that the other tasks give.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from openjev_server.calibration.files import FILE_NAME, CalibrationFile, Entry, Temperatures
from openjev_server.calibration.fit import fit_temperature
from openjev_server.calibration.temperature import KINDS, rescale
from openjev_server.canvas.template import Template

from .metrics import brier, ece
from .predict import Record

__all__ = ["Fitted", "fit", "write_calibration"]

STEPS = (1, 2)


@dataclass(frozen=True, slots=True)
class Fitted:
    """One question type at one number of steps."""

    temperature: float
    report: Mapping[str, float]
    """Rows, and ECE and Brier score before and after (leaving one task out)."""


def fit(records: Sequence[Record], kind: str, steps: int) -> Fitted:
    """Fits on the plain held-out answers of one type. Raises ValueError when there are none."""
    tasks: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.measure == "held-out" and record.variant == "plain" and record.kind == kind:
            tasks[record.task].append(record)
    before: list[tuple[Sequence[float], int]] = []
    after: list[tuple[Sequence[float], int]] = []
    for left_out, members in tasks.items():
        others = [record for task, found in tasks.items() if task != left_out for record in found]
        temperature = _temperature(others, steps) if others else 1.0
        for record in members:
            before.append((record.steps[steps - 1], record.gold))
            after.append((rescale(record.steps[steps - 1], temperature).tolist(), record.gold))
    everything = [record for members in tasks.values() for record in members]
    report: dict[str, float] = {"rows": len(before), "tasks": len(tasks)}
    for name, answers in (("before", before), ("after", after)):
        right = [int(np.argmax(p)) == gold for p, gold in answers]
        report[f"ece_{name}"] = ece([max(p) for p, _ in answers], right)
        report[f"brier_{name}"] = brier([p for p, _ in answers], [gold for _, gold in answers])
    return Fitted(_temperature(everything, steps), report)


def _temperature(records: Sequence[Record], steps: int) -> float:
    sizes: dict[str, int] = defaultdict(int)
    for record in records:
        sizes[record.task] += 1
    answers = [np.array(record.steps[steps - 1]) for record in records]
    return fit_temperature(answers, [r.gold for r in records], [1 / sizes[r.task] for r in records])


def write_calibration(
    directory: Path, records: Sequence[Record], *, template: Template, weights_hash: str, fitted_on: str
) -> dict[str, Any]:
    """Writes `calibration.json` into the checkpoint's directory; returns the report."""
    entries = []
    report: dict[str, Any] = {}
    for steps in STEPS:
        fitted = {kind: fit(records, kind, steps) for kind in KINDS}
        temperatures = {kind: round(fitted[kind].temperature, 3) for kind in KINDS}
        entries.append(
            Entry(layout="isolated", steps=steps, temperatures=Temperatures(**temperatures), fitted_on=fitted_on)
        )
        report[f"{steps} steps"] = {kind: {"temperature": temperatures[kind], **fitted[kind].report} for kind in KINDS}
    file = CalibrationFile(
        template=template.id, template_hash=template.hash, weights_hash=weights_hash, entries=tuple(entries)
    )
    (directory / FILE_NAME).write_text(json.dumps(file.model_dump(), indent=1) + "\n")
    return report
