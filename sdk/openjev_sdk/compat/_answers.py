"""Answers and responses."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias, TypeVar, cast

import httpx

from openjev_sdk._constants import REQUEST_ID_HEADER
from openjev_sdk.compat._errors import TypeSafeError

__all__ = [
    "Answer",
    "ChoiceAnswer",
    "ListModelsResponse",
    "ModelMetadata",
    "NoulAnswer",
    "Response",
    "ScoreAnswer",
    "SystemOneResponse",
    "Usage",
]

A = TypeVar("A")


class _Record:
    """What callers use most of the pydantic methods that the official classes have."""

    def model_dump(self, *, mode: str = "python", exclude_none: bool = False) -> dict[str, Any]:
        """All fields as plain data."""
        return cast(dict[str, Any], _plain(self, exclude_none))

    def model_dump_json(self, *, indent: int | None = None, exclude_none: bool = False) -> str:
        """All fields as JSON."""
        separators = (",", ":") if indent is None else None
        return json.dumps(_plain(self, exclude_none), ensure_ascii=False, indent=indent, separators=separators)


@dataclass(frozen=True, kw_only=True)
class NoulAnswer(_Record):
    """The answer to a yes/no question."""

    type: Literal["noul"] = "noul"
    noul: float
    """Probability of yes."""


@dataclass(frozen=True, kw_only=True)
class ChoiceAnswer(_Record):
    """The answer to a choice."""

    type: Literal["choice"] = "choice"
    choice: str
    confidence: float
    probabilities: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class ScoreAnswer(_Record):
    """The answer to a score."""

    type: Literal["score"] = "score"
    score: float
    """The expected level."""
    confidence: float
    legend: dict[int, str | dict[str, Any] | list[Any]]
    probabilities: dict[int, float]


Answer: TypeAlias = NoulAnswer | ChoiceAnswer | ScoreAnswer


@dataclass(frozen=True, kw_only=True)
class Usage(_Record):
    """Tokens; None where the host does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ModelMetadata(_Record):
    """A model that the host offers."""

    name: str
    description: str
    release_date: str


@dataclass(frozen=True, kw_only=True)
class Response(_Record):
    """A parsed response and the HTTP response that it came from."""

    _raw: httpx.Response | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def from_http_response(cls, response: httpx.Response) -> Self:
        """Parse an HTTP response.

        Raises:
            TypeSafeAPIError: its status is not a success, or its body is not one of this type.
        """
        from openjev_sdk.compat._decode import decode_response  # _decode builds these classes

        return decode_response(response, cls)

    @cached_property
    def request_id(self) -> str:
        """The host's id of the request.

        Raises:
            TypeSafeError: it sent none.
        """
        value = None if self._raw is None else self._raw.headers.get(REQUEST_ID_HEADER)
        if value is None:
            raise TypeSafeError("the response has no request id")
        return str(value)

    @property
    def raw_http_response(self) -> httpx.Response:
        """The HTTP response.

        Raises:
            TypeSafeError: this object was not made from one.
        """
        if self._raw is None:
            raise TypeSafeError("this object was not made from an HTTP response")
        return self._raw


@dataclass(frozen=True, kw_only=True)
class SystemOneResponse(Response):
    """All answers to one request.

    A subclass that annotates further fields with answer types finds the answers of those names in them:
    `class Triage(SystemOneResponse): urgent: NoulAnswer`.
    """

    model: str
    """The model that answered."""
    usage: Usage
    answers: dict[str, Answer] = field(default_factory=dict)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)

    @cached_property
    def nouls(self) -> dict[str, NoulAnswer]:
        """The answers to yes/no questions."""
        return _of(self.answers, NoulAnswer)

    @cached_property
    def choices(self) -> dict[str, ChoiceAnswer]:
        """The answers to choices."""
        return _of(self.answers, ChoiceAnswer)

    @cached_property
    def scores(self) -> dict[str, ScoreAnswer]:
        """The answers to scores."""
        return _of(self.answers, ScoreAnswer)


@dataclass(frozen=True, kw_only=True)
class ListModelsResponse(Response):
    """The models that the host offers."""

    models: tuple[ModelMetadata, ...]


def _of(answers: dict[str, Answer], kind: type[A]) -> dict[str, A]:
    return {name: answer for name, answer in answers.items() if isinstance(answer, kind)}


def _plain(value: Any, exclude_none: bool) -> Any:
    if dataclasses.is_dataclass(value):
        pairs = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return {k: _plain(v, exclude_none) for k, v in pairs.items() if not (exclude_none and v is None)}
    if isinstance(value, dict):
        return {k: _plain(v, exclude_none) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, exclude_none) for v in value]
    return value
