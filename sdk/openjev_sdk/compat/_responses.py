"""Responses, read from HTTP as strictly as the official client does."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, TypeVar, cast, get_type_hints

import httpx

from openjev_sdk._constants import REQUEST_ID_HEADER
from openjev_sdk._errors import decode_body
from openjev_sdk.compat._answers import (
    Answer,
    ChoiceAnswer,
    ModelMetadata,
    NoulAnswer,
    Record,
    ScoreAnswer,
    Usage,
    read_answer,
)
from openjev_sdk.compat._errors import (
    TypeSafeAPIResponseValidationError,
    TypeSafeError,
    response_endpoint,
    status_error,
)
from openjev_sdk.compat._read import InvalidError, read_object, read_string

__all__ = ["ListModelsResponse", "Response", "SystemOneResponse", "decode_response"]

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Response(Record):
    """A parsed response and the HTTP response that it came from."""

    _raw: httpx.Response | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def from_http_response(cls, response: httpx.Response) -> Self:
        """Parse an HTTP response.

        Raises:
            TypeSafeAPIError: its status is not a success, or its body is not one of this type.
        """
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

    @classmethod
    def _read(cls, raw: Any, path: str) -> Self:
        return cls(**_system_one(raw, cls))

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

    @classmethod
    def _read(cls, raw: Any, path: str) -> Self:
        entries = read_object(raw, "").get("models")
        if not isinstance(entries, list | tuple):
            raise InvalidError("models")
        return cls(models=tuple(ModelMetadata._read(entry, f"models[{i}]") for i, entry in enumerate(entries)))


def _of(answers: dict[str, Answer], kind: type[A]) -> dict[str, A]:
    return {name: answer for name, answer in answers.items() if isinstance(answer, kind)}


def decode_response(response: httpx.Response, kind: type[R]) -> R:
    """Parse a response into one of the response classes, or into any pydantic model class.

    Raises:
        TypeSafeAPIError: the status is not a success. TypeSafeAPIResponseValidationError: the body is not valid.
    """
    if not response.is_success:
        raise status_error(response)
    if not issubclass(kind, Response):
        return _foreign(response, kind)
    body = decode_body(response.content)
    try:
        parsed = cast(R, kind._read(body, ""))
    except InvalidError as error:
        raise _validation_error(response, str(error)) from None
    object.__setattr__(parsed, "_raw", response)
    return parsed


def _foreign(response: httpx.Response, kind: type[R]) -> R:
    model: Any = kind
    try:
        parsed: R = model.model_validate_json(response.content)
    except ValueError as error:
        errors = getattr(error, "errors", None)
        location = errors()[0]["loc"] if callable(errors) else ()
        raise _validation_error(response, _join(location)) from error
    return parsed


def _join(location: Any) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def _validation_error(response: httpx.Response, path: str) -> TypeSafeAPIResponseValidationError:
    body = decode_body(response.content)
    return TypeSafeAPIResponseValidationError(
        response.status_code, body, response.headers, path, response_endpoint(response)
    )


def _system_one(body: Any, kind: type[SystemOneResponse]) -> dict[str, Any]:
    root = read_object(body, "")
    raw = root.get("answers", {})
    if isinstance(raw, dict):
        for name, answer in raw.items():
            if not isinstance(answer, dict) or not isinstance(answer.get("type"), str):
                raise InvalidError(f"answers.{name}.type")
    fields: dict[str, Any] = {"model": read_string(root, "model", ""), "usage": Usage._read(root.get("usage"), "usage")}
    answers = {name: read_answer(answer, f"answers.{name}") for name, answer in read_object(raw, "answers").items()}
    fields["answers"] = {name: answer for name, answer in answers.items() if answer is not None}
    own = {f.name: f for f in dataclasses.fields(kind) if f.init}
    for name in own.keys() - {f.name for f in dataclasses.fields(SystemOneResponse)}:
        answer = fields["answers"].get(name)
        if answer is None and own[name].default is not dataclasses.MISSING:
            continue
        if not isinstance(answer, get_type_hints(kind)[name]):
            raise InvalidError(name)
        fields[name] = answer
    return fields
