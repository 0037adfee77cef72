"""From HTTP responses to decisions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

from openjev_sdk._answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    Model,
    NoulAnswer,
    ScoreAnswer,
    UnknownAnswer,
    Usage,
    choice_confidence,
    score_confidence,
)
from openjev_sdk._constants import CALIBRATION_HEADER, FINGERPRINT_HEADER, REQUEST_ID_HEADER
from openjev_sdk._errors import ResponseError, decode_body, endpoint_of
from openjev_sdk._frozen import FrozenMapping

__all__ = ["parse_decision", "parse_models"]

_DURATION = re.compile(r"^\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*(?:;[^,]*?)?;\s*dur\s*=\s*\"?([0-9.]+)")


class _MalformedError(Exception):
    """The place of a value that is not what it must be."""


def parse_decision(response: httpx.Response) -> Decision:
    """The answers in a successful response. Fields that it does not know are left alone.

    Raises:
        ResponseError: the body lacks what every System One host sends.
    """
    body = decode_body(response.content)
    try:
        root = _object(body, "(body)")
        answers = {
            name: _answer(_object(answer, f"answers.{name}"), f"answers.{name}")
            for name, answer in _object(root.get("answers"), "answers").items()
        }
        usage = _object(root.get("usage") or {}, "usage")
        return Decision(
            answers=FrozenMapping(answers),
            model=_string(root.get("model"), "model"),
            usage=Usage(_tokens(usage, "input_tokens"), _tokens(usage, "output_tokens")),
            request_id=response.headers.get(REQUEST_ID_HEADER),
            fingerprint=response.headers.get(FINGERPRINT_HEADER),
            timing=FrozenMapping(_timing(response.headers.get_list("server-timing", split_commas=True))),
            raw=root,
            calibration=response.headers.get(CALIBRATION_HEADER),
        )
    except _MalformedError as error:
        raise _response_error(response, body, str(error)) from None


def parse_models(response: httpx.Response) -> tuple[Model, ...]:
    """The models in a successful response.

    Raises:
        ResponseError: the body is no list of named models.
    """
    body = decode_body(response.content)
    try:
        entries = _object(body, "(body)").get("models")
        if not isinstance(entries, list):
            raise _MalformedError("models")
        return tuple(_model(_object(entry, f"models[{i}]"), f"models[{i}]") for i, entry in enumerate(entries))
    except _MalformedError as error:
        raise _response_error(response, body, str(error)) from None


def _response_error(response: httpx.Response, body: Any, place: str) -> ResponseError:
    message = f"the response is not valid at {place}"
    endpoint = endpoint_of(response.request.method, response.request.url)
    return ResponseError(response.status_code, body, response.headers, message, endpoint)


def _answer(raw: Mapping[str, Any], path: str) -> Answer:
    match raw.get("type"):
        case "noul":
            return NoulAnswer(_number(raw.get("noul"), f"{path}.noul"))
        case "choice":
            options = _probabilities(raw, path)
            choice = _string(raw.get("choice"), f"{path}.choice")
            confidence = _confidence(raw, path, options, choice_confidence)
            return ChoiceAnswer(choice, confidence, FrozenMapping(options))
        case "score":
            return _score(raw, path)
        case kind:
            return UnknownAnswer(kind if isinstance(kind, str) else "", raw)


def _score(raw: Mapping[str, Any], path: str) -> ScoreAnswer:
    levels = dict(sorted(_levels(_probabilities(raw, path), f"{path}.probabilities").items()))
    legend = _levels(_object(raw.get("legend") or {}, f"{path}.legend"), f"{path}.legend")
    confidence = _confidence(raw, path, levels, score_confidence)
    return ScoreAnswer(
        _number(raw.get("score"), f"{path}.score"), confidence, FrozenMapping(legend), FrozenMapping(levels)
    )


def _model(raw: Mapping[str, Any], path: str) -> Model:
    texts = [value if isinstance(value := raw.get(key), str) else None for key in ("description", "release_date")]
    return Model(_string(raw.get("name"), f"{path}.name"), *texts)


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise _MalformedError(path)
    return value


def _string(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _MalformedError(path)
    return value


def _number(value: Any, path: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _MalformedError(path)
    return float(value)


def _confidence(
    raw: Mapping[str, Any],
    path: str,
    probabilities: Mapping[Any, float],
    formula: Callable[[Sequence[float]], float],
) -> float:
    """As sent, else from the probabilities: an answer without either says nothing that a caller could go by."""
    value = raw.get("confidence")
    if value is None and probabilities:
        return formula(list(probabilities.values()))
    return _number(value, f"{path}.confidence")


def _probabilities(raw: Mapping[str, Any], path: str) -> dict[str, float]:
    entries = _object(raw.get("probabilities") or {}, f"{path}.probabilities")
    return {name: _number(value, f"{path}.probabilities.{name}") for name, value in entries.items()}


def _levels(entries: Mapping[str, Any], path: str) -> dict[int, Any]:
    if not all(name.isascii() and name.isdigit() for name in entries):
        raise _MalformedError(path)
    return {int(name): value for name, value in entries.items()}


def _tokens(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) else None


def _timing(metrics: list[str]) -> dict[str, float]:
    durations = {}
    for metric in metrics:
        found = _DURATION.match(metric)
        if found is None:
            continue
        try:
            durations[found[1]] = float(found[2])
        except ValueError:
            continue
    return durations
