"""Question types as calibration sees them: a name, and what the answers of one question are called."""

from __future__ import annotations

import json

from openjev_server.questions import Choice, Noul, Question, Score

__all__ = ["KINDS", "answers_of", "kind_of"]

KINDS = ("choice", "noul", "score")


def kind_of(question: Question) -> str:
    """The question's type as the wire calls it."""
    match question:
        case Noul():
            return "noul"
        case Choice():
            return "choice"
        case Score():
            return "score"


def answers_of(question: Question) -> tuple[str, ...]:
    """Names of the answers in question order: `true` and `false`, option names, or levels (structured ones as JSON)."""
    match question:
        case Noul():
            return ("true", "false")
        case Choice(options=options):
            return tuple(option.name for option in options)
        case Score(levels=levels):
            return tuple(x if isinstance(x, str) else json.dumps(x, sort_keys=True) for x in levels)
