"""How far probabilities can be believed: expected calibration error, Brier score, reliability bins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from .estimate import Estimate, mean
from .interval import case_weights, percentile_interval
from .pairing import Pair

__all__ = ["Bin", "Point", "against_references", "against_right", "brier", "ece", "reliability_bins"]

BINS = 10


@dataclass(frozen=True, slots=True)
class Point:
    """A probability and what it should have been: a share in [0, 1], or 0/1."""

    case: str
    probability: float
    target: float


@dataclass(frozen=True, slots=True)
class Bin:
    """The points with low <= probability < high (the last bin includes 1)."""

    low: float
    high: float
    n: int
    probability: float
    target: float


def against_right(pairs: Iterable[Pair]) -> list[Point]:
    """Left's probability with right's probability of the same answer: true of a noul, else left's top answer."""
    points = []
    for pair in pairs:
        label = "true" if pair.type == "noul" else pair.left.label
        if label is not None and pair.left.probabilities is not None and pair.right.probabilities is not None:
            points.append(
                Point(pair.case, pair.left.probabilities.get(label, 0.0), pair.right.probabilities.get(label, 0.0))
            )
    return points


def against_references(pairs: Iterable[Pair], *, side: str = "left") -> list[Point]:
    """One side's probability with whether the reference says so: true of a noul, else that side's top answer."""
    points = []
    for pair in pairs:
        decision = pair.left if side == "left" else pair.right
        label = "true" if pair.type == "noul" else decision.label
        if label is not None and decision.probabilities is not None and pair.reference is not None:
            points.append(Point(pair.case, decision.probabilities.get(label, 0.0), float(pair.reference == label)))
    return points


def reliability_bins(points: Sequence[Point]) -> list[Bin]:
    """Ten equal-width bins, the empty ones left out."""
    bins = []
    for number in range(BINS):
        inside = [point for point in points if _bin(point.probability) == number]
        if inside:
            bins.append(
                Bin(
                    low=number / BINS,
                    high=(number + 1) / BINS,
                    n=len(inside),
                    probability=sum(point.probability for point in inside) / len(inside),
                    target=sum(point.target for point in inside) / len(inside),
                )
            )
    return bins


def ece(name: str, points: Sequence[Point]) -> Estimate | None:
    """Expected calibration error over ten equal-width bins, with a bootstrap interval by case.

    The interval need not be centred: resampling adds noise, and the error only ever grows with noise.
    """
    if not points:
        return None
    index, drawn = case_weights([point.case for point in points])
    gaps = np.zeros((drawn.shape[1], BINS))
    for row, point in zip(index, points, strict=True):
        gaps[row, _bin(point.probability)] += point.probability - point.target
    counts = drawn @ np.bincount(index).astype(np.float64)
    low, high = percentile_interval(np.abs(drawn @ gaps).sum(axis=1) / counts)
    value = float(np.abs(gaps.sum(axis=0)).sum() / len(points))
    return Estimate(name=name, value=value, n=len(points), low=low, high=high)


def brier(name: str, points: Sequence[Point]) -> Estimate | None:
    """Mean squared difference between probability and target."""
    squares = [(point.probability - point.target) ** 2 for point in points]
    return mean(name, squares, [point.case for point in points])


def _bin(probability: float) -> int:
    return min(int(probability * BINS), BINS - 1)
