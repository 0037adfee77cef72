"""A JSON value in, a `WireRequest` out, or the exact refusal.

Checks run in this order, and the first that fails answers:

1. `null` is a missing body (422), anything but an object is not a request (422);
2. an unknown top-level field (400, unless told to ignore them);
3. `assets`, unless null (400: text only);
4. a question `type` that is an unknown string (400), `box` with a message of its own;
5. the schema: every fault of the request in one list (422);
6. per question, in request order (400): an empty key; a choice without options or with more than 255; a score with
   more than 10 levels; a noul that says nothing (empty texts count as nothing).

Unknown fields inside a question are ignored. The model name is resolved later, by the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from openjev_server.questions import Choice, Noul, Option, Question, Score, Text
from openjev_server.wire import errors
from openjev_server.wire.echo import echo_inputs
from openjev_server.wire.request import WireRequest
from openjev_server.wire.schema import QUESTION, SHELL

__all__ = ["MAX_REPORTED_ERRORS", "parse_request"]

MAX_REPORTED_ERRORS = 1000
"""Questions are checked until this many faults were found, so that a body of a million faults stays cheap."""

_TOP_LEVEL = frozenset({"state", "model", "questions", "assets"})
_TYPES = frozenset({"noul", "choice", "score"})


def parse_request(body: Any, *, unknown_fields: Literal["reject", "ignore"]) -> WireRequest:
    """Reads a decoded body. Raises `WireError` (400 or 422) in the order that the module states."""
    if body is None:
        raise errors.missing_body()
    if not isinstance(body, dict):
        raise errors.validation(echo_inputs(errors.not_an_object(body).detail))
    if unknown_fields == "reject" and not body.keys() <= _TOP_LEVEL:
        raise errors.invalid_request()
    if body.get("assets") is not None:
        raise errors.assets_not_supported()
    _check_types(body.get("questions"))
    if entries := list(islice(_schema_errors(body), MAX_REPORTED_ERRORS)):
        raise errors.validation(echo_inputs(entries))
    questions = tuple(_question(key, value) for key, value in body["questions"].items())
    return WireRequest(model=body["model"], state=body["state"], questions=questions)


def _check_types(questions: Any) -> None:
    if not isinstance(questions, dict):
        return
    for key, question in questions.items():
        kind = question.get("type") if isinstance(question, dict) else None
        if kind == "box":
            raise errors.box_not_supported(key)
        if isinstance(kind, str) and kind not in _TYPES:
            raise errors.invalid_request()


def _schema_errors(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    shell_errors = list(_errors(SHELL, body, ("body",)))
    yield from shell_errors
    if any(entry["loc"][1] == "questions" for entry in shell_errors):
        return
    for key, question in body["questions"].items():
        yield from _errors(QUESTION, _shortened(question), ("body", "questions", key))


def _errors(adapter: TypeAdapter[Any], value: Any, prefix: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    try:
        adapter.validate_python(value)
    except ValidationError as error:
        for entry in error.errors(include_url=False):
            yield {**entry, "loc": [*prefix, *entry["loc"]]}


def _shortened(question: Any) -> Any:
    """The question with as many criteria as it takes to see that there are too many, so that checking is bounded."""
    if not isinstance(question, dict):
        return question
    match question.get("criteria"):
        case dict() as criteria if len(criteria) > errors.MAX_CHOICES:
            return {**question, "criteria": dict(islice(criteria.items(), errors.MAX_CHOICES + 1))}
        case list() as criteria if len(criteria) > errors.MAX_LEVELS:
            return {**question, "criteria": criteria[: errors.MAX_LEVELS + 1]}
    return question


def _question(key: str, question: dict[str, Any]) -> Question:
    if not key:
        raise errors.empty_question_key()
    instructions = _said(question.get("instructions"))
    criteria = question.get("criteria")
    match question["type"]:
        case "choice":
            return _choice(key, instructions, criteria)
        case "score":
            return _score(key, instructions, criteria)
        case _:
            return _noul(key, instructions, criteria)


def _said(text: Text | None) -> Text | None:
    """An empty string says nothing; an empty object or array is a text."""
    return None if text == "" else text


def _noul(key: str, instructions: Text | None, criteria: dict[str, Any] | None) -> Noul:
    sides = criteria or {}
    true, false = _said(sides.get("true")), _said(sides.get("false"))
    if instructions is None and true is None and false is None:
        raise errors.empty_noul(key)
    return Noul(key, instructions, true, false)


def _choice(key: str, instructions: Text | None, criteria: Any) -> Choice:
    if not criteria:
        raise errors.no_choices(key)
    if len(criteria) > errors.MAX_CHOICES:
        raise errors.too_many_choices()
    options = tuple(Option(name, _said(description)) for name, description in criteria.items())
    return Choice(key, instructions, options)


def _score(key: str, instructions: Text | None, levels: Any) -> Score:
    if len(levels) > errors.MAX_LEVELS:
        raise errors.too_many_levels()
    return Score(key, instructions, tuple(levels))
