"""A measured number with how many questions it rests on and its 95 % interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .interval import bootstrap_mean, wilson

__all__ = ["Estimate", "mean", "share"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """`value` with `low` and `high`, the ends of its 95 % interval; `hits` of `n` when it is a share."""

    name: str
    value: float
    n: int
    low: float
    high: float
    hits: int | None = None


def share(name: str, outcomes: Sequence[bool]) -> Estimate | None:
    """How often it happened, with Wilson's interval; None without questions."""
    if not outcomes:
        return None
    hits, n = sum(outcomes), len(outcomes)
    low, high = wilson(hits, n)
    return Estimate(name=name, value=hits / n, n=n, low=low, high=high, hits=hits)


def mean(name: str, values: Sequence[float], cases: Sequence[str]) -> Estimate | None:
    """The mean, with a bootstrap interval by case; None without questions."""
    if not values:
        return None
    low, high = bootstrap_mean(values, cases)
    return Estimate(name=name, value=sum(values) / len(values), n=len(values), low=low, high=high)
