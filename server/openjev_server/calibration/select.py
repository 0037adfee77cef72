"""Which map to fit: the candidates of each question type, compared on rows that they were not fitted on."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from openjev_server.calibration.fit import fit_by_count, fit_damped, fit_platt, fit_temperature, fit_vector
from openjev_server.calibration.report import Row, apply, log_loss
from openjev_server.calibration.scalings import Scaling

__all__ = ["LEFT", "METHODS", "candidates", "choose_method", "fit", "group_folds", "split", "task_folds"]

METHODS = ("temperature", "platt", "vector", "damped", "by_count")
OF_KIND: Mapping[str, tuple[str, ...]] = {
    "noul": ("temperature", "platt"),
    "choice": ("temperature", "damped", "vector"),
    "score": ("temperature", "by_count", "vector"),
}
FOLDS = 5
LEFT = "none"
"""In the place of a method: no map."""


def fit(method: str, rows: Sequence[Row], weights: Sequence[float] | None = None) -> Scaling:
    """The map of one method, fitted on rows of one type.

    Raises ValueError when the rows do not determine it: none at all, one number of answers for `by_count`, several
    sets of answers for `vector`.
    """
    log_p, targets = [row.log_p for row in rows], [row.target for row in rows]
    match method:
        case "temperature":
            return fit_temperature(log_p, targets, weights)
        case "platt":
            return fit_platt(log_p, targets, weights)
        case "damped":
            return fit_damped(log_p, targets, weights)
        case "by_count":
            return fit_by_count(log_p, targets, weights)
        case "vector":
            return _fit_vector(rows, weights)
    raise ValueError(f"no method {method!r}: {', '.join(METHODS)}")


def _fit_vector(rows: Sequence[Row], weights: Sequence[float] | None) -> Scaling:
    sets = {tuple(sorted(row.answers)) for row in rows}
    if len(sets) != 1 or len(rows[0].answers) < 2:
        raise ValueError("vector scaling needs rows with the same answers, two or more")
    names = rows[0].answers
    if len(set(names)) < len(names):
        raise ValueError("vector scaling needs answers with different names")
    orders = [[row.answers.index(name) for name in names] for row in rows]
    log_p = [row.log_p[order] for row, order in zip(rows, orders, strict=True)]
    targets = [row.target[order] for row, order in zip(rows, orders, strict=True)]
    return fit_vector(names, log_p, targets, weights)


def candidates(kind: str, method: str) -> tuple[str, ...]:
    """What `method` stands for with this type; a method that is for other types stands for a temperature."""
    if method == "auto":
        return OF_KIND[kind]
    return (method,) if method in OF_KIND[kind] else ("temperature",)


def choose_method(
    rows: Sequence[Row], methods: Sequence[str], folds: Sequence[Sequence[int]]
) -> tuple[str, Mapping[str, float]]:
    """The method with the smallest mean log loss over folds, each scored with a map fitted on the other folds' rows;
    and every method's loss. `LEFT` is among them: probabilities that no map improves stay as they are. A method that
    cannot be fitted has no loss; without folds the temperature is chosen."""
    if not folds:
        return "temperature", {}
    losses = {LEFT: float(np.mean([log_loss(held, apply(None, held)).mean() for held in _parts(rows, folds)]))}
    for method in methods:
        try:
            losses[method] = float(np.mean([_held_out_loss(rows, method, fold) for fold in folds]))
        except ValueError:
            continue
    return min(losses, key=lambda name: losses[name]), losses


def _parts(rows: Sequence[Row], folds: Sequence[Sequence[int]]) -> list[list[Row]]:
    return [[rows[number] for number in fold] for fold in folds]


def _held_out_loss(rows: Sequence[Row], method: str, fold: Sequence[int]) -> float:
    out = set(fold)
    scaling = fit(method, [row for number, row in enumerate(rows) if number not in out])
    held = [rows[number] for number in fold]
    return float(log_loss(held, apply(scaling, held)).mean())


def split(rows: Sequence[Row], share: float, *, seed: int = 0) -> tuple[list[Row], list[Row]]:
    """Fitting rows, and at least `share` of the rows held out; whole groups, drawn with a fixed seed.

    Raises ValueError when one of the two would be empty.
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    names = sorted(groups)
    random.Random(seed).shuffle(names)
    held: list[Row] = []
    while names and len(held) < share * len(rows):
        held += groups[names.pop()]
    fitting = [row for name in names for row in groups[name]]
    if not held or not fitting:
        raise ValueError(f"{len(groups)} group{'s' if len(groups) != 1 else ''} of rows cannot be split")
    return fitting, held


def group_folds(rows: Sequence[Row], *, seed: int = 0) -> list[list[int]]:
    """Row numbers in up to five folds of whole groups. One group alone makes no fold."""
    names = sorted({row.group for row in rows})
    random.Random(seed).shuffle(names)
    place = {name: number % FOLDS for number, name in enumerate(names)}
    folds: dict[int, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        folds[place[row.group]].append(number)
    return list(folds.values()) if len(folds) > 1 else []


def task_folds(rows: Sequence[Row]) -> Mapping[str, list[int]]:
    """Row numbers by task, of rows that have one; empty unless there are two."""
    folds: dict[str, list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        if row.task is not None:
            folds[row.task].append(number)
    return folds if len(folds) > 1 else {}
