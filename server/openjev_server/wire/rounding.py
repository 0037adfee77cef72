"""Rounding a distribution so that what is printed still sums to exactly one.

Largest remainder: every probability is cut to whole units of 10^-decimals, and the units left over go to the largest
remainders, the lower index first. The order of the probabilities survives: a larger one never prints smaller, so
the chosen answer stays on top (it may share the top).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["normalise", "round_distribution", "round_number"]


def normalise(probabilities: Sequence[float]) -> tuple[float, ...]:
    """Scaled to sum to 1. Raises ValueError for an empty, negative or non-finite distribution, or one of zeros."""
    total = math.fsum(probabilities)
    if not math.isfinite(total) or total <= 0 or min(probabilities) < 0:
        raise ValueError("not a distribution")
    return tuple(float(p / total) for p in probabilities)


def round_distribution(probabilities: Sequence[float], decimals: int) -> tuple[float, ...]:
    """Each probability as a float of at most `decimals` digits; as decimals they sum to exactly 1.

    The input is normalised first; raises ValueError where that fails.
    """
    scale = 10**decimals
    exact = [p * scale for p in normalise(probabilities)]
    units = [math.floor(x) for x in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (units[i] - exact[i], i))
    for i in by_remainder[: scale - sum(units)]:
        units[i] += 1
    return tuple(u / scale for u in units)


def round_number(value: float, decimals: int) -> float:
    """A score, a confidence or a noul as a float of at most `decimals` digits."""
    return round(float(value), decimals)
