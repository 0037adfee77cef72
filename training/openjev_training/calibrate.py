"""Calibration of a checkpoint, fitted on tasks that its training never saw.

On tasks it was trained on a model's confidence is nearly right, so what is fitted there alone leaves it overconfident
on a new question, which is what users ask. Every held-out task has the same weight; the `cal` split of the trained
tasks joins in with a share of it. Method and share are chosen by leaving one held-out task out. The report is nested:
each task is scaled with a map whose method, share and parameters come from the other tasks alone.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from openjev_server.calibration.files import FILE_NAME, CalibrationFile, Entry, Scalings
from openjev_server.calibration.kinds import KINDS
from openjev_server.calibration.report import Row, apply, ece, log_loss
from openjev_server.calibration.scalings import MOST_DAMPING, Float, Scaling
from openjev_server.calibration.select import candidates, fit
from openjev_server.canvas.template import Template

from .predict import Record

__all__ = ["Fitted", "Recipe", "fit_kind", "nested_scalings", "rows_of", "write_calibration"]

STEPS = (1, 2)
SHARES = (0.0, 0.5, 1.0)
"""Weight of all `cal` tasks together, as a part of that of all held-out tasks."""
FLOOR = 5e-6
"""Predictions are kept to five decimals."""

Tasks = Mapping[str, Sequence[Row]]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to fit."""

    method: str
    share: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """One question type at one number of steps."""

    scaling: Scaling
    recipe: Recipe
    report: Mapping[str, Any]


def rows_of(records: Sequence[Record], measure: str, kind: str, steps: int) -> dict[str, list[Row]]:
    """The plain answers of a measure by task; names of the answers are their numbers, which is all that is kept."""
    tasks: dict[str, list[Row]] = defaultdict(list)
    for record in records:
        if (record.measure, record.variant, record.kind) == (measure, "plain", kind):
            p = np.array(record.steps[steps - 1])
            names = tuple(str(number) for number in range(len(p)))
            target = np.eye(len(p))[record.gold]
            row = Row(kind, names, np.log(np.maximum(p, FLOOR)), target, f"{record.task}/{record.number}", record.task)
            tasks[record.task].append(row)
    return tasks


def fit_kind(records: Sequence[Record], kind: str, steps: int) -> Fitted:
    """Fits one question type. Raises ValueError unless there are two held-out tasks of it."""
    held_out, cal = (rows_of(records, measure, kind, steps) for measure in ("held-out", "cal"))
    if len(held_out) < 2:
        raise ValueError(f"{len(held_out)} held-out tasks of type {kind}: leaving one out needs two")
    recipe, losses = _choose(held_out, cal, kind)
    scaling = _rounded(_fit(held_out, cal, recipe))
    nested = nested_scalings(held_out, cal, kind)
    report: dict[str, Any] = {
        "method": recipe.method,
        "share of cal": recipe.share,
        "log loss of every recipe, a task left out": {f"{r.method}, {r.share}": losses[r] for r in losses},
        "before": _scores(held_out, lambda _: None),
        "after, a task left out": _scores(held_out, nested.__getitem__),
        "after, fitted on the same rows": _scores(held_out, lambda _: scaling),
    }
    for measure in ("test", "routing"):
        if tasks := rows_of(records, measure, kind, steps):
            report[f"{measure} before"] = _scores(tasks, lambda _: None)
            report[f"{measure} after"] = _scores(tasks, lambda _: scaling)
    return Fitted(scaling, recipe, report)


def nested_scalings(held_out: Tasks, cal: Tasks, kind: str) -> dict[str, Scaling]:
    """For each held-out task the map whose method, share and parameters come from the others alone."""
    nested: dict[str, Scaling] = {}
    for task in held_out:
        others = _without(held_out, task)
        nested[task] = _fit(others, cal, _choose(others, cal, kind)[0])
    return nested


def _choose(held_out: Tasks, cal: Tasks, kind: str) -> tuple[Recipe, dict[Recipe, float]]:
    """The recipe with the smallest mean log loss when each task in turn is left out; a temperature where none can be
    fitted so."""
    losses: dict[Recipe, float] = {}
    for method in (name for name in candidates(kind, "auto") if name != "vector"):  # tasks differ in their answers
        for share in SHARES if cal else (0.0,):
            recipe = Recipe(method, share)
            try:
                found = []
                for task, rows in held_out.items():
                    scaling = _fit(_without(held_out, task), cal, recipe)
                    found.append(log_loss(rows, apply(scaling, rows)).mean())
                losses[recipe] = float(np.mean(found))
            except ValueError:
                continue
    return min(losses, key=lambda r: losses[r], default=Recipe("temperature", 0.0)), losses


def _fit(held_out: Tasks, cal: Tasks, recipe: Recipe) -> Scaling:
    rows: list[Row] = []
    weights: list[float] = []
    for task in held_out.values():
        rows += task
        weights += [1 / len(task)] * len(task)
    if recipe.share:
        for task in cal.values():
            rows += task
            weights += [recipe.share * max(1, len(held_out)) / len(cal) / len(task)] * len(task)
    if recipe.method == "by_count" and len({len(row.answers) for row in rows}) == 1:
        return fit("temperature", rows, weights)  # what it comes to with one number of levels
    return fit(recipe.method, rows, weights)


def _without(tasks: Tasks, left_out: str) -> Tasks:
    return {name: rows for name, rows in tasks.items() if name != left_out}


def _scores(tasks: Tasks, scaling_of: Callable[[str], Scaling | None]) -> dict[str, Any]:
    """Over all rows, and the calibration error of each task with how often its top answer is right."""
    pooled: list[tuple[Float, Float]] = []
    losses, squares, each = [], [], {}
    for task, rows in tasks.items():
        answers = apply(scaling_of(task), rows)
        confidence = np.array([p.max() for p in answers])
        right = np.array([row.target[p.argmax()] for row, p in zip(rows, answers, strict=True)])
        pooled.append((confidence, right))
        losses.append(log_loss(rows, answers).mean())
        squares += [((p - row.target) ** 2).sum() for row, p in zip(rows, answers, strict=True)]
        each[task] = {
            "ece": ece(confidence, right),
            "confidence": float(confidence.mean()),
            "right": float(right.mean()),
        }
    confidence, right = (np.concatenate(parts) for parts in zip(*pooled, strict=True))
    return {
        "rows": len(confidence),
        "ece": ece(confidence, right),
        "brier": float(np.mean(squares)),
        "log loss, mean of tasks": float(np.mean(losses)),
        "right": float(right.mean()),
        "tasks": each,
    }


def _rounded(scaling: Scaling) -> Scaling:
    """Three decimals are more than the data say."""
    values = scaling.model_dump()
    for name, value in values.items():
        if isinstance(value, float):
            values[name] = round(value, 3)
        elif isinstance(value, tuple):
            values[name] = tuple(round(x, 3) if isinstance(x, float) else x for x in value)
    if "damping" in values:
        values["damping"] = min(values["damping"], MOST_DAMPING * values["slope"])
    return type(scaling).model_validate(values)


def write_calibration(
    directory: Path, records: Sequence[Record], *, model: str, template: Template, weights_hash: str, fitted_on: str
) -> dict[str, Any]:
    """Writes `calibration.json` into the checkpoint's directory; returns the report."""
    entries = []
    report: dict[str, Any] = {}
    for steps in STEPS:
        fitted = {kind: fit_kind(records, kind, steps) for kind in KINDS}
        scalings = Scalings.model_validate({kind: one.scaling.model_dump() for kind, one in fitted.items()})
        entries.append(Entry(layout="isolated", steps=steps, floor=FLOOR, scalings=scalings, fitted_on=fitted_on))
        report[f"{steps} steps"] = {
            kind: {"scaling": one.scaling.model_dump(), **one.report} for kind, one in fitted.items()
        }
    file = CalibrationFile(
        model=model,
        template=template.id,
        template_hash=template.hash,
        weights_hash=weights_hash,
        entries=tuple(entries),
    )
    text = json.dumps(file.model_dump(exclude_none=True), indent=1) + "\n"
    (directory / FILE_NAME).write_text(text, encoding="utf-8")
    return report
