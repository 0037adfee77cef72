"""From answers and what is right to a calibration file, and how much better it is on rows that were held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openjev_server.calibration.data import Labelled
from openjev_server.calibration.files import FLOOR, CalibrationError, CalibrationFile, Entry, Scalings, read_file
from openjev_server.calibration.kinds import KINDS, answers_of, kind_of
from openjev_server.calibration.report import Row, Scores, apply, scores
from openjev_server.calibration.scalings import Float, Scaling
from openjev_server.calibration.select import LEFT, candidates, choose_method, fit, group_folds, split, task_folds

__all__ = ["Fitted", "calibrate_rows", "write_entry"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """One question type."""

    kind: str
    fitting: int
    """Rows that it was fitted on."""
    method: str
    scaling: Scaling | None
    """None: it could not be fitted, and `problem` says why."""
    before: Scores | None = None
    after: Scores | None = None
    """On the held-out rows."""
    tasks_left_out: Scores | None = None
    """On all rows, each task by a map that the others give; None unless two tasks are named."""
    problem: str | None = None


def calibrate_rows(
    labelled: Sequence[Labelled], probabilities: Sequence[Float], *, method: str, holdout: float, seed: int
) -> list[Fitted]:
    """Fits every question type that occurs.

    Groups are split with a fixed seed. The method is chosen within the fitting part, by the log loss of up to five
    folds of groups; the held-out part only measures.
    """
    rows = [
        Row(
            kind_of(one.parsed),
            answers_of(one.parsed),
            np.log(np.maximum(np.asarray(p, np.float64), FLOOR)),
            one.target,
            one.group,
            one.task,
        )
        for one, p in zip(labelled, probabilities, strict=True)
        if len(p) > 1  # one possible answer is right whatever is fitted
    ]
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    return [_fit_kind(kind, [r for r in rows if r.kind == kind], method, holdout, seed) for kind in kinds]


def _fit_kind(kind: str, rows: Sequence[Row], method: str, holdout: float, seed: int) -> Fitted:
    names = candidates(kind, method)
    try:
        fitting, held = split(rows, holdout, seed=seed)
        chosen = names[0] if len(names) == 1 else choose_method(fitting, names, group_folds(fitting, seed=seed))[0]
        if chosen == LEFT:
            problem = "no map was better on rows that it was not fitted on"
            return Fitted(kind, len(rows), method, None, problem=problem)
        scaling = fit(chosen, fitting)
    except ValueError as error:
        return Fitted(kind, len(rows), method, None, problem=str(error))
    before, after = (scores(held, apply(one, held), seed=seed) for one in (None, scaling))
    return Fitted(kind, len(fitting), chosen, scaling, before, after, _leave_tasks_out(rows, chosen, seed))


def _leave_tasks_out(rows: Sequence[Row], method: str, seed: int) -> Scores | None:
    folds = task_folds(rows)
    answers: dict[int, Float] = {}
    for fold in folds.values():
        out = set(fold)
        others = [row for number, row in enumerate(rows) if number not in out]
        try:
            scaling = fit(method, others)
        except ValueError:  # the other tasks do not determine this method
            scaling = fit("temperature", others)
        answers |= zip(fold, apply(scaling, [rows[number] for number in fold]), strict=True)
    if not answers:
        return None
    tasked = sorted(answers)
    return scores([rows[number] for number in tasked], [answers[number] for number in tasked], seed=seed)


def write_entry(
    path: Path,
    scalings: Mapping[str, Any],
    *,
    model: str,
    template: str,
    template_hash: str,
    weights_hash: str,
    layout: str,
    steps: int,
    fitted_on: str,
) -> None:
    """Writes or replaces the entry of one layout and number of steps; a file's other entries stay.

    Raises CalibrationError when the file is there already and is for other weights or another template, and OSError.
    """
    entry = Entry(layout=layout, steps=steps, scalings=Scalings.model_validate(scalings), fitted_on=fitted_on)
    kept: tuple[Entry, ...] = ()
    if path.exists():
        old = read_file(path)
        if (old.template, old.template_hash, old.weights_hash) != (template, template_hash, weights_hash):
            raise CalibrationError(
                f"{path} is there already, for other weights or another template: choose another --out"
            )
        kept = tuple(one for one in old.entries if (one.layout, one.steps) != (layout, steps))
    file = CalibrationFile(
        model=model,
        template=template,
        template_hash=template_hash,
        weights_hash=weights_hash,
        entries=tuple(sorted((*kept, entry), key=lambda one: (one.layout, one.steps))),
    )
    path.write_text(file.model_dump_json(indent=1, exclude_none=True) + "\n", encoding="utf-8")
