"""The numbers of one set of pairs. Each is None where the recordings cannot give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from .decision import TOP, Decision
from .estimate import Estimate, mean, share
from .pairing import Pair
from .reliability import against_references, against_right, brier, ece

__all__ = ["DESCRIPTIONS", "METRICS", "Thresholds", "label_only", "measure", "total_variation"]

_SUM_TOLERANCE = 0.015  # a recorded distribution may sum to 0.99


@dataclass(frozen=True, slots=True)
class Thresholds:
    """`noul`: P(true) at which one metric splits the yes/no answers; top answers are not touched.

    `gate`: from which confidence an answer is acted upon.
    """

    noul: float = 0.5
    gate: float = 0.9


Measure = Callable[[Sequence[Pair], str, Thresholds], Estimate | None]


def total_variation(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """Half the sum of absolute differences: 0 equal, 1 disjoint."""
    labels = dict.fromkeys([*left, *right])
    return sum(abs(left.get(label, 0.0) - right.get(label, 0.0)) for label in labels) / 2


def measure(pairs: Sequence[Pair], thresholds: Thresholds) -> tuple[Estimate, ...]:
    """Every metric that these pairs can give, in the order of METRICS."""
    estimates = (function(pairs, name, thresholds) for name, function in METRICS.items())
    return tuple(estimate for estimate in estimates if estimate is not None)


def _agreement(pairs: Sequence[Pair], name: str, _: Thresholds) -> Estimate | None:
    return share(name, [pair.left.label == pair.right.label for pair in _labelled(pairs)])


def _variation(pairs: Sequence[Pair], name: str, _: Thresholds) -> Estimate | None:
    rows = [
        (total_variation(pair.left.probabilities, pair.right.probabilities), pair.case)
        for pair in pairs
        if pair.left.probabilities is not None and pair.right.probabilities is not None
    ]
    return mean(name, [value for value, _ in rows], [case for _, case in rows])


def _noul_delta(pairs: Sequence[Pair], name: str, _: Thresholds) -> Estimate | None:
    rows = [
        (abs(pair.left.p_true - pair.right.p_true), pair.case)
        for pair in pairs
        if pair.left.p_true is not None and pair.right.p_true is not None and pair.type == "noul"
    ]
    return mean(name, [value for value, _ in rows], [case for _, case in rows])


def _noul_agreement(pairs: Sequence[Pair], name: str, thresholds: Thresholds) -> Estimate | None:
    nouls = [pair for pair in _labelled(pairs) if pair.type == "noul" and not label_only(pair, thresholds)]
    return share(name, [_side(pair.left, thresholds.noul) == _side(pair.right, thresholds.noul) for pair in nouls])


def label_only(pair: Pair, thresholds: Thresholds) -> bool:
    """Whether this yes/no cannot be judged at the threshold: a bare label was decided at P(true) = 0.5."""
    return (
        pair.type == "noul"
        and thresholds.noul != TOP
        and (pair.left.p_true is None or pair.right.p_true is None)
        and pair.left.label is not None
        and pair.right.label is not None
    )


def _side(decision: Decision, threshold: float) -> bool:
    return decision.label == "true" if decision.p_true is None else decision.p_true >= threshold


def _score_error(pairs: Sequence[Pair], name: str, _: Thresholds) -> Estimate | None:
    rows = [
        (abs(pair.left.score - pair.right.score), pair.case)
        for pair in pairs
        if pair.left.score is not None and pair.right.score is not None
    ]
    return mean(name, [value for value, _ in rows], [case for _, case in rows])


def _accuracy(side: Callable[[Pair], Decision]) -> Measure:
    def accuracy(pairs: Sequence[Pair], name: str, _: Thresholds) -> Estimate | None:
        scored = [pair for pair in _labelled(pairs) if pair.reference is not None]
        return share(name, [side(pair).label == pair.reference for pair in scored])

    return accuracy


def _passed(side: Callable[[Pair], Decision]) -> Measure:
    def passed(pairs: Sequence[Pair], name: str, thresholds: Thresholds) -> Estimate | None:
        return share(name, [_gated(side(pair), thresholds.gate) is not None for pair in _gateable(pairs)])

    return passed


def _gate_changed(pairs: Sequence[Pair], name: str, thresholds: Thresholds) -> Estimate | None:
    gate = thresholds.gate
    return share(name, [_gated(pair.left, gate) != _gated(pair.right, gate) for pair in _gateable(pairs)])


def _gate_agreement(pairs: Sequence[Pair], name: str, thresholds: Thresholds) -> Estimate | None:
    through = [pair for pair in _gateable(pairs) if _gated(pair.left, thresholds.gate) is not None]
    return share(name, [pair.left.label == pair.right.label for pair in through])


def _validity(pairs: Sequence[Pair], name: str, _: Thresholds) -> Estimate | None:
    return share(name, [_valid(pair.left, pair.allowed) for pair in pairs if pair.allowed])


def _valid(decision: Decision, allowed: Sequence[str]) -> bool:
    if decision.label is not None and decision.label not in allowed:
        return False
    if decision.score is not None and not 0 <= decision.score <= len(allowed) - 1:
        return False
    if decision.probabilities is None:
        return True
    shares = decision.probabilities.values()
    return (
        set(decision.probabilities) <= set(allowed)
        and all(0 <= value <= 1 for value in shares)
        and abs(sum(shares) - 1) <= _SUM_TOLERANCE
    )


def _gated(decision: Decision, gate: float) -> str | None:
    """What a confidence gate lets through: the label, or None when a person has to look."""
    return decision.label if decision.confidence is not None and decision.confidence >= gate else None


def _labelled(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.left.label is not None and pair.right.label is not None]


def _gateable(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in _labelled(pairs) if pair.left.confidence is not None and pair.right.confidence is not None]


METRICS: Mapping[str, Measure] = MappingProxyType(
    {
        "agreement": _agreement,
        "validity": _validity,
        "total_variation": _variation,
        "noul_delta": _noul_delta,
        "noul_agreement": _noul_agreement,
        "score_error": _score_error,
        "accuracy_left": _accuracy(lambda pair: pair.left),
        "accuracy_right": _accuracy(lambda pair: pair.right),
        "ece_right": lambda pairs, name, _: ece(name, against_right(pairs)),
        "brier_right": lambda pairs, name, _: brier(name, against_right(pairs)),
        "ece_reference": lambda pairs, name, _: ece(name, against_references(pairs)),
        "brier_reference": lambda pairs, name, _: brier(name, against_references(pairs)),
        "gate_changed": _gate_changed,
        "gate_passed_left": _passed(lambda pair: pair.left),
        "gate_passed_right": _passed(lambda pair: pair.right),
        "gate_agreement": _gate_agreement,
    }
)

DESCRIPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "agreement": "same top answer",
        "validity": "answers inside the allowed set",
        "total_variation": "total variation distance",
        "noul_delta": "yes/no: mean |difference of P(true)|",
        "noul_agreement": "yes/no: same side of the threshold",
        "score_error": "score: mean absolute difference in levels",
        "accuracy_left": "{left} equals the reference",
        "accuracy_right": "{right} equals the reference",
        "ece_right": "calibration error against {right}'s probability",
        "brier_right": "Brier score against {right}'s probability",
        "ece_reference": "calibration error against references",
        "brier_reference": "Brier score against references",
        "gate_changed": "decisions that a confidence gate would change",
        "gate_passed_left": "{left} passes the gate",
        "gate_passed_right": "{right} passes the gate",
        "gate_agreement": "same answer where {left} passes the gate",
    }
)
