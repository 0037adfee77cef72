"""The typed questions that every stage shares: what the wire parses and the canvas spells.

Values are immutable; a structured text keeps its JSON shape until the canvas turns it into tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Choice", "Noul", "Option", "Question", "Score", "Text", "answer_count"]

Text = str | dict[str, Any] | list[Any]
"""A state, an instruction or a description: a string, or JSON that the model reads as JSON text."""


@dataclass(frozen=True, slots=True)
class Noul:
    """A yes/no question. At least one of the three texts says something."""

    id: str
    instructions: Text | None
    true: Text | None = None
    false: Text | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One allowed answer of a choice; without a description it is judged by its name."""

    name: str
    description: Text | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of 1 to 255 options, in request order."""

    id: str
    instructions: Text | None
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """One of 1 to 10 ordered levels."""

    id: str
    instructions: Text | None
    levels: tuple[Text, ...]


Question = Noul | Choice | Score


def answer_count(question: Question) -> int:
    """How many values the answer can take. A noul has two: true first, then false."""
    match question:
        case Noul():
            return 2
        case Choice(options=options):
            return len(options)
        case Score(levels=levels):
            return len(levels)
