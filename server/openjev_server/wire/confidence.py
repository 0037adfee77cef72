"""Confidence and expected score of a distribution, from unrounded probabilities.

The formulas are those of the wire contract (section 3.2), as the dialect's official adapter publishes them:
a choice's lead over a uniform guess, and a score's concentration around its most likely level.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["choice_confidence", "expected_score", "most_likely", "score_confidence"]


def most_likely(probabilities: Sequence[float]) -> int:
    """Index of the largest probability, the first of equals."""
    return max(range(len(probabilities)), key=probabilities.__getitem__)


def choice_confidence(probabilities: Sequence[float]) -> float:
    """(max - 1/n) / (1 - 1/n); 1 for a single option. Probabilities sum to 1. In [0, 1]."""
    n = len(probabilities)
    if n == 1:
        return 1.0
    return _clamp((max(probabilities) - 1 / n) / (1 - 1 / n))


def score_confidence(probabilities: Sequence[float]) -> float:
    """1 - E|i - mode| / mean|i - centre|, at least 0; 1 for a single level. Probabilities sum to 1. In [0, 1]."""
    n = len(probabilities)
    if n == 1:
        return 1.0
    mode, centre = most_likely(probabilities), (n - 1) / 2
    spread = sum(p * abs(i - mode) for i, p in enumerate(probabilities))
    uniform_spread = sum(abs(i - centre) for i in range(n)) / n
    return _clamp(1 - spread / uniform_spread)


def expected_score(probabilities: Sequence[float]) -> float:
    """sum(i * p_i), in [0, n - 1]. Probabilities sum to 1."""
    return min(float(len(probabilities) - 1), sum(i * p for i, p in enumerate(probabilities)))


def _clamp(value: float) -> float:
    return min(1.0, max(0.0, value))
