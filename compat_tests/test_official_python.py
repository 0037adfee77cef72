"""The official Python client, newest and 0.6.0, each in its own environment, against a real socket."""

from pathlib import Path
from typing import Any

import pytest
from conftest import KEY
from live_server import LiveServer
from wire_tap import SeenRequest, wire_tap

VERSIONS = ("0.6.0", "0.7.5")
DRIVER = str(Path(__file__).parent / "official" / "drive.py")
ZSTD_MAGIC = bytes.fromhex("28b52ffd")
LEVELS = {"0": "No time pressure.", "1": "Within a few days.", "2": "Today."}


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def drive(version: str, tool_json: Any) -> Any:
    def run(command: str, url: str, key: str = "no-key-is-needed") -> Any:
        python = f".venvs/typesafe-sdk-{version}/bin/python"
        return tool_json(python, DRIVER, command, settings={"TYPESAFE_BASE_URL": url, "TYPESAFE_API_KEY": key})

    return run


def assert_seen(seen: dict[str, Any], model: str) -> None:
    assert seen["model"] == model
    assert seen["request_id"].startswith("req_")
    assert seen["ids"] == ["refund", "queue", "urgency", "raw"]
    assert set(seen["nouls"]) == {"refund", "raw"}
    assert all(0 <= value <= 1 for value in seen["nouls"].values())
    assert list(seen["queue"]["probabilities"]) == ["billing", "technical", "sales"]
    assert seen["queue"]["probabilities"][seen["queue"]["choice"]] == max(seen["queue"]["probabilities"].values())
    assert seen["urgency"]["legend"] == LEVELS
    assert list(seen["urgency"]["probabilities"]) == list(LEVELS)
    assert 0 <= seen["urgency"]["score"] <= 2
    assert min(seen["usage"]) > 0


def test_answers_sync_and_async(version: str, drive: Any, server: LiveServer) -> None:
    seen = drive("answers", server.url)
    assert seen["version"] == version
    assert_seen(seen["sync"], "openjev-nano-1")
    assert_seen(seen["async"]["string"], "openjev-nano-1")
    assert_seen(seen["async"]["object"], "jev-1.14.0")
    for part in ("queue", "urgency", "nouls", "usage"):
        assert seen["async"]["string"][part] == seen["sync"][part]
    names = [name for name, _, _ in seen["models"]]
    assert {"jev-latest", "jev-preview", "openjev-latest", "openjev-nano-1"} <= set(names)
    assert seen["async"]["models"] == names


def test_sensible_answers(drive: Any, server: LiveServer) -> None:
    seen = drive("answers", server.url)["sync"]
    assert seen["queue"]["choice"] == "billing"
    assert seen["nouls"]["refund"] > 0.5


def test_base_url_with_v1_works_too(drive: Any, server: LiveServer) -> None:
    assert_seen(drive("answers", f"{server.url}/v1")["sync"], "openjev-nano-1")


def test_errors_are_typed_and_never_retried(drive: Any, server: LiveServer) -> None:
    with wire_tap(server.url) as tap:
        seen = drive("errors", tap.url)
    bad_request = {"unknown model", "unknown type", "box", "too many options", "no such field"}
    assert {name for name, error in seen.items() if error["class"] == "TypeSafeBadRequestError"} == bad_request
    assert seen["invalid"]["class"] == "TypeSafeUnprocessableEntityError"
    assert all(error["request_id"].startswith("req_") for error in seen.values())
    assert "Unknown model: jev-1.13" in seen["unknown model"]["message"]
    assert "Too many choices. Must have at most 255 choices." in seen["too many options"]["message"]
    assert "Input should be a valid dictionary" in seen["invalid"]["message"]
    assert len(tap.requests) == len(seen)
    assert not any("x-typesafe-retry-count" in request.headers for request in tap.requests)


def test_keys(drive: Any, keyed_server: LiveServer) -> None:
    assert_seen(drive("answers", keyed_server.url, KEY)["sync"], "openjev-nano-1")
    refused = drive("refused", keyed_server.url, "a-wrong-key")
    for error in refused.values():
        assert error["class"] == "TypeSafeAuthenticationError"
        assert error["status"] == 401
        assert "Cannot authenticate with the server" in error["message"]


def test_long_body(version: str, drive: Any, server: LiveServer) -> None:
    with wire_tap(server.url) as tap:
        assert_seen(drive("long", tap.url), "openjev-nano-1")
    assert [request.status for request in tap.requests] == [200]
    assert compressed(tap.requests[0]) == (version == "0.7.5")


def compressed(request: SeenRequest) -> bool:
    """Whether the client sent zstd, by its header and by the bytes."""
    by_header = request.headers.get("content-encoding") == "zstd"
    assert by_header == request.body.startswith(ZSTD_MAGIC)
    return by_header
