"""What agreement costs nothing: the most frequent answer, and a blind guess."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .estimate import Estimate, mean, share
from .pairing import Pair

__all__ = ["majority", "random_guess"]


def majority(pairs: Sequence[Pair]) -> Estimate | None:
    """Agreement with right of its own most frequent answer per question type.

    The question itself is not counted (leave one out). A choice takes the most frequent answer among those it
    allows, its first option when none of them occurs elsewhere.
    """
    labelled = [pair for pair in pairs if pair.left.label is not None and pair.right.label is not None]
    counts: dict[str, Counter[str]] = {}
    for pair in labelled:
        counts.setdefault(pair.type, Counter())[_label(pair)] += 1
    outcomes = []
    for pair in labelled:
        others = counts[pair.type]
        own = _label(pair)
        guess = max(pair.allowed or (own,), key=lambda label: others[label] - (label == own))
        outcomes.append(guess == own)
    return share("majority", outcomes)


def random_guess(pairs: Sequence[Pair]) -> Estimate | None:
    """Expected agreement of a uniform guess among the allowed answers."""
    rows = [
        (1 / len(pair.allowed), pair.case)
        for pair in pairs
        if pair.allowed and pair.left.label is not None and pair.right.label is not None
    ]
    return mean("random", [value for value, _ in rows], [case for _, case in rows])


def _label(pair: Pair) -> str:
    assert pair.right.label is not None
    return pair.right.label
