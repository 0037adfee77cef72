"""The official JavaScript client against a real socket."""

from pathlib import Path
from typing import Any

import pytest
from conftest import KEY
from live_server import LiveServer
from wire_checks import assert_answers
from wire_tap import wire_tap

DRIVER = str(Path(__file__).parent / "node" / "drive.mjs")
REQUEST = {
    "questions": {
        "refund": {"type": "noul"},
        "queue": {"type": "choice", "criteria": {"billing": "...", "technical": None, "sales": "..."}},
        "urgency": {"type": "score", "criteria": ["No time pressure.", "Within a few days.", "Today."]},
        "raw": {"type": "noul"},
    }
}


@pytest.fixture
def drive(tool_json: Any) -> Any:
    def run(command: str, url: str, key: str = "no-key-is-needed") -> Any:
        settings = {"TYPESAFE_BASE_URL": url, "TYPESAFE_API_KEY": key}
        return tool_json(".venvs/node/bin/node", DRIVER, command, settings=settings)

    return run


def test_answers(drive: Any, server: LiveServer) -> None:
    seen = drive("answers", server.url)
    # JavaScript's numbers forget that 1.0 was written with a point.
    for answer in seen["data"]["answers"].values():
        for key in {"noul", "score", "confidence"} & set(answer):
            answer[key] = float(answer[key])
        if "probabilities" in answer:
            answer["probabilities"] = {name: float(p) for name, p in answer["probabilities"].items()}
    assert_answers(REQUEST, seen["data"])
    assert seen["data"]["model"] == "openjev-nano-1"
    assert seen["data"]["answers"]["queue"]["choice"] == "billing"
    assert seen["pinned"] == "jev-1.14.0"
    assert seen["request_id"].startswith("req_")
    assert seen["content_type"] == "application/json"
    assert {"jev-latest", "openjev-nano-1"} <= {model["name"] for model in seen["models"]}


def test_errors_are_typed_and_never_retried(drive: Any, server: LiveServer) -> None:
    with wire_tap(server.url) as tap:
        seen = drive("errors", tap.url)
    bad_request = {"unknown model", "unknown type", "box", "no such field"}
    assert {name for name, error in seen.items() if error["class"] == "BadRequestError"} == bad_request
    assert {name for name, error in seen.items() if error["class"] == "UnprocessableEntityError"} == {
        "invalid",
        "null state",
    }
    assert all(error["request_id"].startswith("req_") for error in seen.values())
    assert len(tap.requests) == len(seen)


def test_keys(drive: Any, keyed_server: LiveServer) -> None:
    assert drive("answers", keyed_server.url, KEY)["data"]["model"] == "openjev-nano-1"
    for error in drive("refused", keyed_server.url, "a-wrong-key").values():
        assert error["class"] == "AuthenticationError"
        assert error["status"] == 401
