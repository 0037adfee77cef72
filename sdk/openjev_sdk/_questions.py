"""Questions as callers write them, and their wire form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openjev_sdk._errors import UsageError
from openjev_sdk._frozen import FrozenMapping

__all__ = ["Choice", "Noul", "Question", "Questions", "Score", "Text", "question_bodies"]

Text = str | Mapping[str, Any] | Sequence[Any]
"""A state, an instruction or a description: a string, or a JSON object or array."""


@dataclass(frozen=True, slots=True)
class Noul:
    """A yes/no question.

    Raises:
        UsageError: neither instructions nor a description of one side; an empty string says nothing.
    """

    instructions: Text | None = None
    true: Text | None = field(default=None, kw_only=True)
    """What a yes means."""
    false: Text | None = field(default=None, kw_only=True)
    """What a no means."""

    def __post_init__(self) -> None:
        if all(text is None or text == "" for text in (self.instructions, self.true, self.false)):
            raise UsageError("a noul needs instructions or a description of true or false")

    def body(self) -> dict[str, Any]:
        """The wire form."""
        sides = {name: text for name, text in (("true", self.true), ("false", self.false)) if text is not None}
        return _body("noul", self.instructions, sides or None)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several options: `Choice("What is it about?", {"billing": "Money", "other": None})`.

    Options are a mapping of names to descriptions (None: judged by its name), or an iterable of names.

    Raises:
        UsageError: no option, an option twice, a name that is not a string, or one string for all options.
    """

    instructions: Text | None = None
    options: Mapping[str, Text | None] | Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", _options(self.options))

    def body(self) -> dict[str, Any]:
        """The wire form."""
        return _body("choice", self.instructions, self.options)


@dataclass(frozen=True, slots=True)
class Score:
    """One of several ordered levels, lowest first: `Score("How angry?", ["Calm", "Annoyed", "Furious"])`.

    Raises:
        UsageError: no level, a level that is None, or one string for all levels.
    """

    instructions: Text | None = None
    levels: Sequence[Text] = ()

    def __post_init__(self) -> None:
        if isinstance(self.levels, str | bytes) or not isinstance(self.levels, Sequence):
            raise UsageError("the levels of a score must be a list of descriptions, lowest first")
        if not self.levels or any(level is None for level in self.levels):
            raise UsageError("a score needs at least one level, and a description for each")
        object.__setattr__(self, "levels", tuple(self.levels))

    def body(self) -> dict[str, Any]:
        """The wire form."""
        return _body("score", self.instructions, self.levels)


Question = Noul | Choice | Score | Mapping[str, Any]
"""A question: one of the helpers, or its wire form as a plain mapping with a `type`."""
Questions = Mapping[str, Question]
"""Questions under the ids by which their answers are found. The model does not see the ids."""


def question_bodies(questions: Questions) -> dict[str, Any]:
    """The wire form of all questions, in order. Plain mappings pass as they are, whatever their type.

    Raises:
        UsageError: no question, an id that is not a non-empty string, or something that is no question.
    """
    if not isinstance(questions, Mapping) or not questions:
        raise UsageError("questions must be a mapping with at least one question")
    return {_checked_id(name): _question_body(name, question) for name, question in questions.items()}


def _checked_id(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"a question id must be a non-empty string, not {name!r}")
    return name


def _question_body(name: str, question: Question) -> Mapping[str, Any]:
    if isinstance(question, Noul | Choice | Score):
        return question.body()
    if not isinstance(question, Mapping) or not isinstance(question.get("type"), str):
        raise UsageError(f"question {name!r} must be a Noul, Choice or Score, or a mapping with a 'type'")
    return question


def _options(options: Mapping[str, Text | None] | Sequence[str]) -> FrozenMapping[str, Text | None]:
    if isinstance(options, str | bytes):
        raise UsageError("the options of a choice must be a mapping or a list of names, not one string")
    names = list(options)
    if not names:
        raise UsageError("a choice needs at least one option")
    if not all(isinstance(name, str) for name in names):
        raise UsageError("the options of a choice must have strings as names")
    if len(set(names)) < len(names):
        raise UsageError("a choice names an option twice")
    return FrozenMapping(options if isinstance(options, Mapping) else dict.fromkeys(names))


def _body(kind: str, instructions: Text | None, criteria: Any) -> dict[str, Any]:
    body = {"type": kind, "instructions": instructions, "criteria": criteria}
    return {key: value for key, value in body.items() if value is not None}
