"""McNemar's exact test: do two sides differ in how often they are right?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

from .pairing import Pair

__all__ = ["McNemar", "mcnemar"]


@dataclass(frozen=True, slots=True)
class McNemar:
    """Questions that only one side got right, and the two-sided exact p-value of that split being chance."""

    both: int
    left_only: int
    right_only: int
    neither: int
    p_value: float


def mcnemar(pairs: Iterable[Pair]) -> McNemar | None:
    """Over the questions with a reference that both sides answer; None without any."""
    counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for pair in pairs:
        if pair.reference is not None and pair.left.label is not None and pair.right.label is not None:
            counts[pair.left.label == pair.reference, pair.right.label == pair.reference] += 1
    if not any(counts.values()):
        return None
    left_only, right_only = counts[True, False], counts[False, True]
    return McNemar(
        both=counts[True, True],
        left_only=left_only,
        right_only=right_only,
        neither=counts[False, False],
        p_value=_two_sided(left_only, right_only),
    )


def _two_sided(one: int, other: int) -> float:
    """P(a split at least this uneven) for fair coins: Binomial(one + other, 1/2), both tails."""
    n = one + other
    tail = sum(comb(n, k) for k in range(min(one, other) + 1))
    return float(min(1.0, tail / 2 ** (n - 1))) if n else 1.0
