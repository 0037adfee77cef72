"""From HTTP responses to the response classes, as strictly as the official client reads them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, get_type_hints

import httpx

from openjev_sdk._errors import decode_body
from openjev_sdk.compat._answers import (
    Answer,
    ChoiceAnswer,
    ListModelsResponse,
    ModelMetadata,
    NoulAnswer,
    Response,
    ScoreAnswer,
    SystemOneResponse,
    Usage,
)
from openjev_sdk.compat._errors import TypeSafeAPIResponseValidationError, response_endpoint, status_error
from openjev_sdk.compat._logging import logger

__all__ = ["decode_response"]

R = TypeVar("R")
V = TypeVar("V")


class _InvalidError(Exception):
    """The path of a bad field."""


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
        fields = _models(body) if issubclass(kind, ListModelsResponse) else _system_one(body, kind)
    except _InvalidError as error:
        raise _validation_error(response, str(error)) from None
    parsed: R = kind(**fields)
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


def _system_one(body: Any, kind: type[Response]) -> dict[str, Any]:
    root = _object(body, "")
    raw = root.get("answers", {})
    if isinstance(raw, dict):
        for name, answer in raw.items():
            if not isinstance(answer, dict) or not isinstance(answer.get("type"), str):
                raise _InvalidError(f"answers.{name}.type")
    fields: dict[str, Any] = {"model": _string(root, "model", ""), "usage": _usage(root.get("usage"))}
    answers = {name: _answer(answer, f"answers.{name}") for name, answer in _object(raw, "answers").items()}
    fields["answers"] = {name: answer for name, answer in answers.items() if answer is not None}
    own = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for name in own.keys() - {field.name for field in dataclasses.fields(SystemOneResponse)}:
        answer = fields["answers"].get(name)
        if answer is None and own[name].default is not dataclasses.MISSING:
            continue
        if not isinstance(answer, get_type_hints(kind)[name]):
            raise _InvalidError(name)
        fields[name] = answer
    return fields


def _usage(raw: Any) -> Usage:
    usage = _object(raw, "usage")
    for name in ("input_tokens", "output_tokens"):
        value = usage.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise _InvalidError(f"usage.{name}")
    return Usage(input_tokens=usage.get("input_tokens"), output_tokens=usage.get("output_tokens"))


def _answer(raw: dict[str, Any], path: str) -> Answer | None:
    match raw["type"]:
        case "noul":
            return NoulAnswer(noul=_number(raw.get("noul"), f"{path}.noul"))
        case "choice":
            return ChoiceAnswer(
                choice=_string(raw, "choice", path),
                confidence=_number(raw.get("confidence"), f"{path}.confidence"),
                probabilities=_entries(raw, "probabilities", path, str, _number),
            )
        case "score":
            return ScoreAnswer(
                score=_number(raw.get("score"), f"{path}.score"),
                confidence=_number(raw.get("confidence"), f"{path}.confidence"),
                legend=_entries(raw, "legend", path, int, _text),
                probabilities=_entries(raw, "probabilities", path, int, _number),
            )
        case kind:
            logger.warning("leaving out answer %r of unknown type %r", path, kind)
            return None


def _models(body: Any) -> dict[str, Any]:
    entries = _object(body, "").get("models")
    if not isinstance(entries, list):
        raise _InvalidError("models")
    return {"models": tuple(_model(entry, f"models[{i}]") for i, entry in enumerate(entries))}


def _model(raw: Any, path: str) -> ModelMetadata:
    entry = _object(raw, path)
    return ModelMetadata(
        name=_string(entry, "name", path),
        description=_string(entry, "description", path),
        release_date=_string(entry, "release_date", path),
    )


K = TypeVar("K", str, int)


def _entries(
    raw: dict[str, Any], name: str, path: str, key: Callable[[str], K], value: Callable[[Any, str], V]
) -> dict[K, V]:
    place = f"{path}.{name}"
    result = {}
    for text, entry in _object(raw.get(name), place).items():
        try:
            parsed = key(text)
        except ValueError:
            raise _InvalidError(f"{place}.{text}") from None
        result[parsed] = value(entry, f"{place}.{text}")
    return result


def _object(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _InvalidError(path)
    return value


def _string(raw: dict[str, Any], name: str, path: str) -> str:
    value = raw.get(name)
    if not isinstance(value, str):
        raise _InvalidError(f"{path}.{name}" if path else name)
    return value


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _InvalidError(path)
    return float(value)


def _text(value: Any, path: str) -> str | dict[str, Any] | list[Any]:
    if not isinstance(value, str | dict | list):
        raise _InvalidError(f"{path}.str")
    return value
