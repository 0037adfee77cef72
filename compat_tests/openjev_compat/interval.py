"""95 % intervals: Wilson for shares, bootstrap by case for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from numpy.typing import NDArray

__all__ = ["bootstrap_mean", "case_weights", "percentile_interval", "wilson"]

_Z = 1.959963984540054  # the normal's 97.5 % point
_REPLICATES = 2000
_SEED = 0


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's score interval of hits/n (E. B. Wilson, 1927). n must be positive."""
    share = hits / n
    scale = 1 + _Z**2 / n
    centre = (share + _Z**2 / (2 * n)) / scale
    half = _Z * sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)) / scale
    return (0.0 if hits == 0 else centre - half), (1.0 if hits == n else centre + half)


def case_weights(cases: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each row the index of its case, and how often each replicate draws each case: (replicates, cases)."""
    _, index = np.unique(np.asarray(cases, dtype=object).astype(str), return_inverse=True)
    count = int(index.max()) + 1
    drawn = np.random.default_rng(_SEED).multinomial(count, np.full(count, 1 / count), size=_REPLICATES)
    return index.astype(np.int64), drawn.astype(np.float64)


def bootstrap_mean(values: Sequence[float], cases: Sequence[str]) -> tuple[float, float]:
    """The interval of the mean of `values` when whole cases are drawn with replacement."""
    index, drawn = case_weights(cases)
    sums = drawn @ np.bincount(index, weights=np.asarray(values, dtype=np.float64))
    counts = drawn @ np.bincount(index).astype(np.float64)
    return percentile_interval(sums / counts)


def percentile_interval(replicates: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(replicates, [0.025, 0.975])
    return float(low), float(high)
