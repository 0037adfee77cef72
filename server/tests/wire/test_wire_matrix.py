"""Every case of the recorded and derived validation matrix that a body alone decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openjev_server.wire.body import decode_body
from openjev_server.wire.errors import WireError, method_not_allowed, not_found
from openjev_server.wire.json import to_json_bytes
from openjev_server.wire.openapi import json_schemas
from openjev_server.wire.parse import parse_request

FIXTURES = Path(__file__).parents[3] / "fixtures"
MATRIX: dict[str, dict[str, Any]] = json.loads((FIXTURES / "validation_matrix.json").read_text())
BY_ROUTE = {"GET systemone", "POST models", "unknown path", "trailing slash"}
ERROR_SCHEMA = Draft202012Validator(json_schemas()["error"])


def answer(case: dict[str, Any]) -> WireError | None:
    raw = case["raw"].encode() if "raw" in case else json.dumps(case["body"]).encode()
    content_type = case.get("headers", {"content-type": "application/json"}).get("content-type")
    try:
        body = decode_body(raw, content_encoding=None, content_type=content_type, limit=1 << 20, max_depth=100)
        parse_request(body, unknown_fields="reject")
    except WireError as error:
        return error
    return None


@pytest.mark.parametrize("name", sorted(MATRIX.keys() - BY_ROUTE))
def test_case(name: str) -> None:
    case = MATRIX[name]
    error = answer(case)
    if error is None:
        assert case.get("lenient")
        return
    assert error.status == case["status"]
    sent = json.loads(to_json_bytes(error.body))
    assert sent == case["response"]
    ERROR_SCHEMA.validate(sent)


def test_routing_refusals() -> None:
    assert not_found().body == MATRIX["unknown path"]["response"]
    for name in ("GET systemone", "POST models"):
        error = method_not_allowed(MATRIX[name]["headers"]["allow"])
        assert (error.status, error.body) == (405, MATRIX[name]["response"])
        assert {k.lower(): v for k, v in error.headers.items()} == MATRIX[name]["headers"]


def test_the_whole_matrix_is_covered() -> None:
    assert len(MATRIX) == 44
    assert all("body" in MATRIX[n] or "raw" in MATRIX[n] for n in MATRIX.keys() - BY_ROUTE)


def test_text_plain_and_no_content_type_are_answered() -> None:
    assert answer(MATRIX["text/plain valid json"]) is None
    assert answer(MATRIX["no content-type"]) is None
