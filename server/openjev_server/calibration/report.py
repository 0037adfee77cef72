"""How well probabilities fit what is right: log loss, calibration error and Brier score, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openjev_server.calibration.files import FLOOR
from openjev_server.calibration.scalings import Float, Scaling, normalised

__all__ = ["Interval", "Row", "Scores", "apply", "bootstrap", "ece", "log_loss", "scores"]

Indices = NDArray[np.int64]
BINS = 15
REPLICATES = 500


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One answered question and what is right."""

    kind: str
    answers: tuple[str, ...]
    log_p: Float
    """Log-probabilities as the model gives them, [n], floored."""
    target: Float
    """Distribution over the answers, [n]: a label, or somebody's probabilities."""
    group: str
    """Rows of a group (a document) are never on both sides of a split."""
    task: str | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    value: float
    low: float
    high: float
    """95 % of the replicates lie between."""


@dataclass(frozen=True, slots=True)
class Scores:
    n: int
    log_loss: Interval
    ece: Interval
    brier: Interval


def apply(scaling: Scaling | None, rows: Sequence[Row]) -> list[Float]:
    """Calibrated probabilities of every row; None leaves them as they are."""
    return [normalised(row.log_p if scaling is None else scaling.logits(row.log_p, row.answers)) for row in rows]


def log_loss(rows: Sequence[Row], answers: Sequence[Float]) -> Float:
    """Cross-entropy of each row, in nats."""
    found: Float = np.array([-row.target @ np.log(np.maximum(p, FLOOR)) for row, p in zip(rows, answers, strict=True)])
    return found


def ece(confidence: Float, right: Float, bins: int = BINS) -> float:
    """Expected calibration error over equal-mass bins (Nguyen & O'Connor 2015): mean |confidence - accuracy|.

    `right` is how much of each row's target is on its top answer: 0 or 1 for a label.
    """
    order = np.argsort(confidence, kind="stable")
    gap = confidence[order] - right[order]
    return float(sum(abs(part.sum()) for part in np.array_split(gap, bins)) / len(gap))


def scores(rows: Sequence[Row], answers: Sequence[Float], *, seed: int = 0) -> Scores:
    """All three, intervals by drawing whole groups with replacement. Raises ValueError without rows."""
    if not rows:
        raise ValueError("no rows to score")
    losses = log_loss(rows, answers)
    squares = np.array([((p - row.target) ** 2).sum() for row, p in zip(rows, answers, strict=True)])
    confidence = np.array([p.max() for p in answers])
    right = np.array([row.target[p.argmax()] for row, p in zip(rows, answers, strict=True)])
    groups = [row.group for row in rows]
    statistics: tuple[Callable[[Indices], float], ...] = (
        lambda i: float(losses[i].mean()),
        lambda i: ece(confidence[i], right[i]),
        lambda i: float(squares[i].mean()),
    )
    intervals = bootstrap(groups, statistics, seed=seed)
    return Scores(len(rows), *intervals)


def bootstrap(
    groups: Sequence[str],
    statistics: Sequence[Callable[[Indices], float]],
    *,
    seed: int = 0,
    replicates: int = REPLICATES,
) -> list[Interval]:
    """Percentile intervals of statistics of row numbers, drawing whole groups with replacement.

    An error that cannot be negative grows with the noise that drawing adds, so an interval need not be centred.
    """
    names, index = np.unique(np.asarray(groups, dtype=object).astype(str), return_inverse=True)
    members = [np.flatnonzero(index == number) for number in range(len(names))]
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(replicates):
        chosen: Indices = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])
        drawn.append([statistic(chosen) for statistic in statistics])
    everything = np.arange(len(groups))
    low, high = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    return [
        Interval(statistic(everything), float(a), float(b))
        for statistic, a, b in zip(statistics, low, high, strict=True)
    ]
