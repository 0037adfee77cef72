"""Probabilities in, the answer as the wire spells it out. Field sets and their order are part of the contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from openjev_server.questions import Choice, Noul, Question, Score, answer_count
from openjev_server.wire.confidence import choice_confidence, expected_score, most_likely, score_confidence
from openjev_server.wire.rounding import normalise, round_distribution, round_number

__all__ = ["TokenUsage", "render_answer", "render_response"]


class TokenUsage(Protocol):
    """What a request is billed."""

    @property
    def input_tokens(self) -> int: ...

    @property
    def output_tokens(self) -> int: ...


def render_answer(question: Question, probabilities: Sequence[float], *, decimals: int) -> dict[str, Any]:
    """One answer, keys in wire order, floats of at most `decimals` digits.

    `probabilities` has one entry per possible answer in question order (a noul: yes, no) and is normalised here.
    Confidence, score and the chosen option come from the unrounded values.

    Raises ValueError when the number of probabilities does not fit the question or they are no distribution.
    """
    if len(probabilities) != answer_count(question):
        raise ValueError(f"{len(probabilities)} probabilities for {answer_count(question)} answers")
    p = normalise([float(x) for x in probabilities])
    match question:
        case Noul():
            return {"type": "noul", "noul": round_number(p[0], decimals)}
        case Choice(options=options):
            names = [option.name for option in options]
            return {
                "type": "choice",
                "choice": names[most_likely(p)],
                "confidence": round_number(choice_confidence(p), decimals),
                "probabilities": dict(zip(names, round_distribution(p, decimals), strict=True)),
            }
        case Score(levels=levels):
            return {
                "type": "score",
                "score": round_number(expected_score(p), decimals),
                "confidence": round_number(score_confidence(p), decimals),
                "legend": {str(i): level for i, level in enumerate(levels)},
                "probabilities": {str(i): x for i, x in enumerate(round_distribution(p, decimals))},
            }


def render_response(model: str, answers: Mapping[str, dict[str, Any]], usage: TokenUsage) -> dict[str, Any]:
    """The whole body: model, answers in question order, usage."""
    return {
        "model": model,
        "answers": dict(answers),
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
    }
