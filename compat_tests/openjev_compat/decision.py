"""What an answer says, whatever its type: a label, a distribution, a confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openjev_server.wire.confidence import choice_confidence, expected_score, score_confidence

from .fixture import Fixture

__all__ = ["TOP", "Decision", "decide", "reference_label", "top_two_margin"]

TOP = 0.5  # from which P(true) true is the top answer of a yes/no


@dataclass(frozen=True, slots=True)
class Decision:
    """One side's answer. `probabilities` is over labels, in the order of the allowed answers; None for a bare label.

    `score` is the expected level (0 to n-1) of a score; `confidence` is in [0, 1] (noul: max(p, 1-p)).
    """

    label: str | None
    probabilities: Mapping[str, float] | None
    score: float | None
    confidence: float | None

    @property
    def p_true(self) -> float | None:
        return None if self.probabilities is None else self.probabilities.get("true")


def decide(fixture: Fixture, allowed: Sequence[str]) -> Decision:
    """The decision of a recorded answer; its label is the likelier answer, so a noul is true from 0.5 on."""
    answer = fixture.answer
    if fixture.type == "noul":
        return _noul(answer)
    given: Mapping[str, float] | None = answer.get("probabilities")
    if given is None:
        label = answer.get("choice", answer.get("label"))
        return Decision(label=label, probabilities=None, score=answer.get("score"), confidence=answer.get("confidence"))
    # Options that a recording leaves out had no share; a label outside the allowed ones stays, for the validity count.
    order = [*allowed, *(label for label in given if label not in allowed)]
    probabilities = {label: float(given.get(label, 0.0)) for label in order}
    shares = list(probabilities.values())
    if fixture.type == "choice":
        confidence = answer.get("confidence")
        if confidence is None:
            confidence = choice_confidence(shares)
        return Decision(label=answer["choice"], probabilities=probabilities, score=None, confidence=confidence)
    confidence = answer.get("confidence")
    if confidence is None:
        confidence = score_confidence(shares)
    score = answer.get("score")
    return Decision(
        label=max(probabilities, key=lambda label: probabilities[label]),
        probabilities=probabilities,
        score=expected_score(shares) if score is None else float(score),
        confidence=confidence,
    )


def _noul(answer: Mapping[str, Any]) -> Decision:
    p_true = answer.get("noul")
    if p_true is None:
        return Decision(label=answer["label"], probabilities=None, score=None, confidence=None)
    return Decision(
        label="true" if p_true >= TOP else "false",
        probabilities={"true": float(p_true), "false": 1.0 - p_true},
        score=None,
        confidence=max(p_true, 1.0 - p_true),
    )


def top_two_margin(decision: Decision) -> float | None:
    """The largest probability minus the second largest; 1 for a single allowed answer, None without a distribution."""
    if decision.probabilities is None:
        return None
    ordered = sorted(decision.probabilities.values(), reverse=True)
    return ordered[0] - (ordered[1] if len(ordered) > 1 else 0.0)


def reference_label(reference: Mapping[str, float] | None) -> str | None:
    """The answer with the largest share; None when there is no reference or the largest share is tied."""
    if reference is None:
        return None
    largest = max(reference.values())
    top = [label for label, share in reference.items() if share >= largest - 1e-9]
    return top[0] if len(top) == 1 else None
