"""Model names, request ids, override headers, the error table."""

from __future__ import annotations

import inspect
import time
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openjev_server.wire import errors
from openjev_server.wire.errors import WireError
from openjev_server.wire.models import ModelCatalog
from openjev_server.wire.openapi import json_schemas
from openjev_server.wire.overrides import Overrides, parse_overrides
from openjev_server.wire.request_id import new_request_id

CATALOG = ModelCatalog("openjev-nano-1")


@pytest.mark.parametrize("name", ["jev-latest", "jev-preview", "openjev-latest", "openjev-nano-1"])
def test_names_of_the_loaded_model(name: str) -> None:
    assert CATALOG.resolve(name) == "openjev-nano-1"


@pytest.mark.parametrize("name", ["jev-1.13.0", "jev-1.14.0"])
def test_pinned_versions_are_echoed_unless_turned_off(name: str) -> None:
    assert CATALOG.resolve(name) == name
    with pytest.raises(WireError):
        ModelCatalog("openjev-nano-1", accept_pinned=False).resolve(name)


@pytest.mark.parametrize("name", ["", "jev-1.13", "JEV-LATEST", "gpt-4", "\ud800"])
def test_unknown_models(name: str) -> None:
    with pytest.raises(WireError) as caught:
        CATALOG.resolve(name)
    assert caught.value.status == 400
    assert caught.value.detail == {"error_type": "api_usage_error", "message": f"Unknown model: {name}"}


def test_listing() -> None:
    listing = CATALOG.listing()
    Draft202012Validator(json_schemas()["models"]).validate(listing)
    names = [m["name"] for m in listing["models"]]
    assert names == ["jev-latest", "jev-preview", "openjev-latest", "openjev-nano-1"]
    assert [m["id"] for m in listing["data"]] == names
    assert all(CATALOG.resolve(name) == "openjev-nano-1" for name in names)


def test_request_ids() -> None:
    before = time.time_ns() // 1_000_000
    ids = [new_request_id() for _ in range(1000)]
    after = time.time_ns() // 1_000_000
    assert len(set(ids)) == 1000
    for request_id in ids:
        prefix, digits = request_id[:4], request_id[4:]
        assert prefix == "req_"
        assert len(digits) == 32
        assert digits == digits.lower()
        assert before <= int(digits[:12], 16) <= after
        assert digits[12] == "7"
        assert digits[16] in "89ab"
    assert [i[4:16] for i in ids] == sorted(i[4:16] for i in ids)


DEFAULTS = Overrides(layout="isolated", steps=2, replicas=1, decimals=2)


def test_overrides() -> None:
    assert parse_overrides({}, DEFAULTS, allowed=True) == DEFAULTS
    assert parse_overrides({"host": "x", "openjev-steps": " "}, DEFAULTS, allowed=False) == DEFAULTS
    headers = {
        "openjev-layout": "grouped",
        "OpenJev-Steps": " 8 ",
        "OPENJEV-REPLICAS": "3",
        "openjev-decimals": "6",
        "openjev-calibration": "OFF",
    }
    assert parse_overrides(headers, DEFAULTS, allowed=True) == Overrides("grouped", 8, 3, 6, False)
    assert parse_overrides({"openjev-steps": "1"}, DEFAULTS, allowed=True) == Overrides("isolated", 1, 1, 2)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("OpenJev-Layout", "shared"),
        ("OpenJev-Steps", "0"),
        ("OpenJev-Steps", "9"),
        ("OpenJev-Steps", "2.0"),
        ("OpenJev-Steps", "-1"),
        ("OpenJev-Steps", "٣"),
        ("OpenJev-Steps", "9" * 5000),
        ("OpenJev-Replicas", "99"),
        ("OpenJev-Replicas", "x"),
        ("OpenJev-Decimals", "1"),
        ("OpenJev-Decimals", "7"),
        ("OpenJev-Calibration", "no"),
    ],
)
def test_bad_overrides_name_the_header(header: str, value: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_overrides({header.lower(): value}, DEFAULTS, allowed=True)
    assert caught.value.status == 400
    assert caught.value.detail["error_type"] == "api_usage_error"
    assert header in caught.value.detail["message"]


def test_overrides_that_are_not_allowed_are_refused() -> None:
    with pytest.raises(WireError) as caught:
        parse_overrides({"openjev-steps": "3"}, DEFAULTS, allowed=False)
    assert caught.value.status == 400
    assert "OpenJev-Steps" in caught.value.detail["message"]


AUTH = "authentication_error"
USAGE = "api_usage_error"


@pytest.mark.parametrize(
    ("error", "status", "detail"),
    [
        (
            errors.missing_key(),
            403,
            {"error_type": AUTH, "message": "Must supply an API key! Check your request and try again."},
        ),
        (
            errors.wrong_key(),
            401,
            {
                "error_type": AUTH,
                "message": "Cannot authenticate with the server. Please check your API key and try again.",
            },
        ),
        (errors.unknown_model("X"), 400, {"error_type": USAGE, "message": "Unknown model: X"}),
        (errors.invalid_request(), 400, {"error_type": USAGE, "message": "Invalid request."}),
        (errors.too_many_choices(), 400, "Too many choices. Must have at most 255 choices."),
        (errors.too_many_levels(), 400, "Too many score levels. Must have at most 10 levels."),
        (errors.no_choices("id"), 400, "Choice question must have at least one choice: id"),
        (errors.empty_question_key(), 400, "Question key cannot be empty."),
        (errors.empty_noul("id"), 400, "Noul question must have criteria or instructions: id"),
        (errors.max_tokens_exceeded(), 400, {"error_type": "max_tokens_exceeded"}),
        (errors.not_found(), 404, "Not Found"),
        (errors.method_not_allowed("POST"), 405, "Method Not Allowed"),
        (
            errors.missing_body(),
            422,
            [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}],
        ),
    ],
)
def test_the_error_table(error: WireError, status: int, detail: Any) -> None:
    assert (error.status, error.detail) == (status, detail)


def test_overloaded_says_when_to_come_back() -> None:
    error = errors.overloaded(3)
    assert (error.status, error.headers) == (529, {"Retry-After": "3"})
    assert error.detail["error_type"] == "overloaded"


def test_every_constructor_makes_a_valid_error_body() -> None:
    schema = Draft202012Validator(json_schemas()["error"])
    arguments: dict[str, Any] = {"entries": errors.missing_body().detail}
    defaults: dict[type, Any] = {int: 7, float: 7.0, str: "x"}
    makers = [getattr(errors, name) for name in errors.__all__ if inspect.isfunction(getattr(errors, name))]
    assert len(makers) > 25
    for maker in makers:
        hints = inspect.get_annotations(maker, eval_str=True)
        given = {k: arguments.get(k, defaults.get(t, "x")) for k, t in hints.items() if k != "return"}
        schema.validate(maker(**given).body)
