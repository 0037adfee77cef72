"""A parsed request, immutable."""

from __future__ import annotations

from dataclasses import dataclass

from openjev_server.questions import Question, Text

__all__ = ["WireRequest"]


@dataclass(frozen=True, slots=True)
class WireRequest:
    """What was asked: a model name that is not resolved yet, a state, and one or more questions in request order."""

    model: str
    state: Text
    questions: tuple[Question, ...]
