"""Every variant asked the same questions, and compared with Jev, with the references, and with the base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .decision import decide
from .estimate import Estimate, share
from .fixture import Fixture
from .mcnemar import McNemar, mcnemar
from .metrics import Thresholds, measure
from .pairing import join

__all__ = ["SHOWN", "VariantResult", "compare_variant", "not_run"]

SHOWN = ("agreement", "accuracy_left", "total_variation", "ece_reference", "brier_reference")
"""Of `metrics`, in the order of the columns."""


@dataclass(frozen=True, slots=True)
class VariantResult:
    """One variant's numbers. `reason` says why it was not run; all numbers are then empty."""

    name: str
    factor: str
    how: str
    questions: int
    answered: int
    estimates: Mapping[str, Estimate]
    changed: Estimate | None
    """Questions with another top answer than the base's."""
    against_base: McNemar | None
    """Which of the two agrees with Jev: `left` is the variant, `right` the base."""
    seconds: float
    reason: str | None = None


def compare_variant(
    name: str,
    factor: str,
    how: str,
    answers: Sequence[Fixture],
    base: Sequence[Fixture],
    jev: Mapping[str, Fixture],
    *,
    seconds: float,
) -> VariantResult:
    """`base` holds the base's answers to the same questions (its own for the base)."""
    ours = {fixture.id: fixture for fixture in answers}
    pairs = join(ours, jev)
    estimates = {estimate.name: estimate for estimate in measure(pairs, Thresholds())}
    is_base = factor == "base"
    beside = join(ours, {fixture.id: _with_jev(fixture, jev) for fixture in base if fixture.id in jev})
    return VariantResult(
        name=name,
        factor=factor,
        how=how,
        questions=len(jev),
        answered=len(pairs),
        estimates={name: estimates[name] for name in SHOWN if name in estimates},
        changed=None if is_base else share("changed", [pair.left.label != pair.right.label for pair in beside]),
        against_base=None if is_base else mcnemar(beside),
        seconds=seconds,
    )


def not_run(name: str, factor: str, how: str, reason: str) -> VariantResult:
    return VariantResult(name, factor, how, 0, 0, {}, None, None, 0.0, reason)


def _with_jev(fixture: Fixture, jev: Mapping[str, Fixture]) -> Fixture:
    """The base's answer with Jev's as what is right."""
    theirs = jev[fixture.id]
    label = decide(theirs, theirs.allowed or fixture.allowed).label
    return replace(fixture, reference=None if label is None else {label: 1.0})
