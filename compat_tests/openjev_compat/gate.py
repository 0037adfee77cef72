"""A pass or fail for CI out of one metric."""

from __future__ import annotations

from dataclasses import dataclass

from .estimate import Estimate
from .metrics import METRICS
from .report import Section
from .store import FixtureError

__all__ = ["Verdict", "judge"]

_LOWER_IS_BETTER = frozenset(
    {"total_variation", "noul_delta", "score_error", "ece_right", "brier_right", "ece_reference", "brier_reference"}
    | {"gate_changed"}
)


@dataclass(frozen=True, slots=True)
class Verdict:
    passed: bool
    reason: str


def judge(section: Section, metric: str, limit: float, *, strict: bool) -> Verdict:
    """Compare a metric with its limit; `strict` takes the worse end of its interval.

    A distance, an error or a rate of change must stay at or below the limit, every other metric reach it.
    Raises FixtureError for an unknown metric or one that these recordings cannot give.
    """
    if metric not in METRICS:
        raise FixtureError(f"unknown metric {metric}: one of {', '.join(METRICS)}")
    estimate = section.estimate(metric)
    if estimate is None:
        raise FixtureError(f"these recordings do not give {metric}")
    falling = metric in _LOWER_IS_BETTER
    judged = (estimate.high if falling else estimate.low) if strict else estimate.value
    passed = judged <= limit if falling else judged >= limit
    sign = ("<=" if passed else ">") if falling else (">=" if passed else "<")
    bound = f" (the interval's {'upper' if falling else 'lower'} end)" if strict else ""
    return Verdict(passed, f"{metric} {_counted(estimate)}: {judged:.4f}{bound} {sign} {limit:g}")


def _counted(estimate: Estimate) -> str:
    shown = f"{estimate.hits}/{estimate.n}" if estimate.hits is not None else f"{estimate.value:.4f} (n {estimate.n})"
    return f"{shown} [{estimate.low:.4f}, {estimate.high:.4f}]"
