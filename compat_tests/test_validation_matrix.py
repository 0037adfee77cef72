"""Every case of fixtures/validation_matrix.json on a real socket: status and body, equal as parsed JSON."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_server import LiveServer
from wire_checks import assert_schema

MATRIX: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parent.parent / "fixtures" / "validation_matrix.json").read_text()
)
VALID = {"model": "jev-latest", "state": "s", "questions": {"q": {"type": "noul", "instructions": "x?"}}}
# Cases that their names describe: method, path, body.
DESCRIBED: dict[str, tuple[str, str, Any]] = {
    "GET systemone": ("GET", "/v1/systemone", None),
    "POST models": ("POST", "/v1/models", VALID),
    "unknown path": ("GET", "/v1/nothing", None),
    "trailing slash": ("POST", "/v1/systemone/", VALID),
}


def send(name: str, case: dict[str, Any], url: str) -> httpx.Response:
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        if name in DESCRIBED:
            method, path, body = DESCRIBED[name]
            return client.request(method, path, json=body) if body else client.request(method, path)
        if "raw" in case:
            return client.post("/v1/systemone", content=case["raw"].encode(), headers=case["headers"])
        return client.post("/v1/systemone", json=case["body"], headers=case.get("headers"))


@pytest.mark.parametrize("name", MATRIX)
def test_case(name: str, server: LiveServer) -> None:
    case = MATRIX[name]
    response = send(name, case, server.url)
    assert response.headers["x-typesafe-request-id"].startswith("req_")
    if case.get("lenient") and response.status_code == 200:
        assert_schema("response", response.json())
        return
    assert response.status_code == case["status"]
    assert response.json() == case["response"]
    assert_schema("error", response.json())
    if case["status"] == 405:
        assert response.headers["allow"] == case["headers"]["allow"]


def test_the_matrix_is_whole() -> None:
    assert len(MATRIX) == 44


def test_unknown_field_can_be_ignored(lenient_server: LiveServer) -> None:
    case = MATRIX["unknown top-level field"]
    response = send("unknown top-level field", case, lenient_server.url)
    assert response.status_code == 200
    assert_schema("response", response.json())
