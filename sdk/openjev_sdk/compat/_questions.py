"""Question objects and question dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from openjev_sdk.compat._content import Content
from openjev_sdk.compat._errors import TypeSafeError

__all__ = [
    "Choice",
    "ChoiceModel",
    "Noul",
    "NoulCriteria",
    "NoulModel",
    "Question",
    "QuestionModel",
    "Questions",
    "Score",
    "ScoreModel",
    "question_bodies",
]


class NoulCriteria(TypedDict, total=False):
    """What yes and no mean."""

    true: Content | None
    false: Content | None


class NoulModel(TypedDict):
    """A yes/no question as a dictionary."""

    type: Literal["noul"]
    instructions: NotRequired[Content | None]
    criteria: NotRequired[NoulCriteria | None]


class ChoiceModel(TypedDict):
    """A choice as a dictionary; criteria map options to descriptions."""

    type: Literal["choice"]
    instructions: NotRequired[Content | None]
    criteria: Mapping[str, Content | None]


class ScoreModel(TypedDict):
    """A score as a dictionary; criteria list the levels."""

    type: Literal["score"]
    instructions: NotRequired[Content | None]
    criteria: Sequence[Content]


@dataclass(kw_only=True)
class Noul:
    """A yes/no question.

    Raises:
        ValueError: another type, or criteria that are no mapping.
    """

    type: Literal["noul"] = "noul"
    instructions: Content | None = None
    criteria: NoulCriteria | None = None

    def __post_init__(self) -> None:
        _require(self.type == "noul", "type must be 'noul'")
        _require(self.criteria is None or isinstance(self.criteria, Mapping), "criteria must be a mapping")
        unknown = sorted(set(self.criteria or {}) - {"true", "false"})
        _require(not unknown, f"criteria describe true and false only, not {unknown}")


@dataclass(kw_only=True)
class Choice:
    """A choice between named options.

    Raises:
        ValueError: another type, or criteria that are no mapping.
    """

    type: Literal["choice"] = "choice"
    instructions: Content | None = None
    criteria: Mapping[str, Content | None]

    def __post_init__(self) -> None:
        _require(self.type == "choice", "type must be 'choice'")
        _require(isinstance(self.criteria, Mapping), "criteria must be a mapping")


@dataclass(kw_only=True)
class Score:
    """A choice between ordered levels.

    Raises:
        ValueError: another type, or criteria that are no list or an empty one.
    """

    type: Literal["score"] = "score"
    instructions: Content | None = None
    criteria: Sequence[Content]

    def __post_init__(self) -> None:
        _require(self.type == "score", "type must be 'score'")
        listed = isinstance(self.criteria, Sequence) and not isinstance(self.criteria, str | bytes)
        _require(listed and len(self.criteria) > 0, "criteria must be a list with at least one level")


QuestionModel: TypeAlias = NoulModel | ChoiceModel | ScoreModel
Question: TypeAlias = Noul | Choice | Score | QuestionModel
Questions: TypeAlias = Mapping[str, Question]


def question_bodies(questions: Mapping[str, Question]) -> dict[str, Any]:
    """The wire form; dictionaries pass as they are.

    Raises:
        TypeSafeError: no question, or one that no host could answer.
    """
    if not questions:
        raise TypeSafeError("no question was passed")
    return {name: _checked_body(name, question) for name, question in questions.items()}


def _checked_body(name: str, question: Question) -> Mapping[str, Any]:
    body: Mapping[str, Any]
    if isinstance(question, Noul | Choice | Score):
        fields = {"type": question.type, "instructions": question.instructions, "criteria": question.criteria}
        body = {key: value for key, value in fields.items() if value is not None}
    elif isinstance(question, dict) and isinstance(question.get("type"), str) and question["type"]:
        body = question
    else:
        raise TypeSafeError(f"question {name!r} is neither a question object nor a dictionary with a type")
    criteria: Any = body.get("criteria")
    match body["type"]:
        case "choice" | "score" if not criteria:
            raise TypeSafeError(f"question {name!r} has no criteria")
        case "noul" if criteria is not None and not isinstance(criteria, Mapping):
            raise TypeSafeError(f"the criteria of question {name!r} are not an object")
        case "noul" if body.get("instructions") is None and not any(
            text is not None for text in (criteria or {}).values()
        ):
            raise TypeSafeError(f"question {name!r} has neither instructions nor a described outcome")
    return body


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
