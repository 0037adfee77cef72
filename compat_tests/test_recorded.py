"""Recorded exchanges with Jev: their answers through our SDK, and their requests to our server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import respx
from conftest import KEY
from live_server import LiveServer
from openjev_sdk import (
    Answer,
    AuthenticationError,
    ChoiceAnswer,
    Client,
    NoulAnswer,
    ScoreAnswer,
    UnprocessableEntityError,
)
from wire_checks import assert_answers, assert_schema

RECORDED = Path(__file__).resolve().parent.parent / "fixtures" / "recorded"
HOST = "https://jev.example"


def pairs() -> Iterator[dict[str, Any]]:
    for path in sorted(RECORDED.glob("*.json")):
        for pair in json.loads(path.read_text())["pairs"]:
            yield pair | {"id": f"{path.stem}:{pair['id']}"}


def is_complete(pair: dict[str, Any]) -> bool:
    """A whole exchange with the native API: answers with model and usage, an error body or a model list."""
    return pair["status"] != 200 or "models" in pair["response"] or {"model", "usage"} <= set(pair["response"])


COMPLETE = [pair for pair in pairs() if is_complete(pair)]
ASKED = [pair for pair in COMPLETE if pair["method"] == "POST" and pair["status"] == 200]


def by_id(pair: dict[str, Any]) -> str:
    return str(pair["id"])


def as_sent(answer: Answer) -> dict[str, Any]:
    """The wire's form of an answer that our SDK parsed."""
    match answer:
        case NoulAnswer(probability):
            return {"type": "noul", "noul": probability}
        case ChoiceAnswer(choice, confidence, probabilities):
            return {"type": "choice", "choice": choice, "confidence": confidence, "probabilities": dict(probabilities)}
        case ScoreAnswer(score, confidence, legend, probabilities):
            levels = {str(level): text for level, text in legend.items()}
            shares = {str(level): share for level, share in probabilities.items()}
            return {
                "type": "score",
                "score": score,
                "confidence": confidence,
                "legend": levels,
                "probabilities": shares,
            }
        case _:
            pytest.fail(f"unknown answer: {answer}")


def replayed(pair: dict[str, Any], mock: respx.MockRouter) -> respx.Route:
    headers = pair.get("headers", {"content-type": "application/json"})
    content = json.dumps(pair["response"], separators=(",", ":"), ensure_ascii=False).encode()
    route = mock.request(pair["method"], f"{HOST}{pair['path']}")
    route.mock(return_value=httpx.Response(pair["status"], headers=headers, content=content))
    return route


@pytest.fixture
def sdk() -> Iterator[Client]:
    with Client(base_url=HOST, api_key="apikey_recorded") as client:
        yield client


@pytest.mark.parametrize("pair", ASKED, ids=by_id)
def test_our_sdk_reads_recorded_answers(pair: dict[str, Any], sdk: Client) -> None:
    request, recorded = pair["request"], pair["response"]
    with respx.mock as mock:
        route = replayed(pair, mock)
        decision = sdk.decide(request["state"], request["questions"], model=request["model"])
    assert json.loads(route.calls.last.request.content) == request
    assert decision.model == recorded["model"]
    assert decision.usage.input_tokens == recorded["usage"]["input_tokens"]
    assert decision.usage.output_tokens == recorded["usage"]["output_tokens"]
    assert decision.request_id == pair.get("headers", {}).get("x-typesafe-request-id")
    assert list(decision.answers) == list(recorded["answers"])
    for name, answer in recorded["answers"].items():
        assert as_sent(decision.answers[name]) == answer


def test_our_sdk_reads_the_recorded_model_list(sdk: Client) -> None:
    (pair,) = (pair for pair in COMPLETE if "models" in pair["response"])
    with respx.mock as mock:
        replayed(pair, mock)
        listed = sdk.models()
    assert [
        {"name": model.name, "description": model.description, "release_date": model.release_date} for model in listed
    ] == pair["response"]["models"]


@pytest.mark.parametrize(("status", "error"), [(401, AuthenticationError), (422, UnprocessableEntityError)])
def test_our_sdk_raises_recorded_errors(status: int, error: type[Exception], sdk: Client) -> None:
    (pair,) = (pair for pair in COMPLETE if pair["status"] == status)
    request_id = pair["headers"]["x-typesafe-request-id"]
    # An empty map of questions is refused before it is sent: any question will do to receive the recorded answer.
    questions = pair["request"]["questions"] or {"q": {"type": "noul", "instructions": "x?"}}
    with respx.mock as mock:
        route = replayed(pair, mock)
        with pytest.raises(error, match=request_id):
            sdk.decide(pair["request"]["state"], questions)
    assert route.call_count == 1


@pytest.mark.parametrize("pair", ASKED, ids=by_id)
def test_our_server_answers_recorded_requests(pair: dict[str, Any], server: LiveServer) -> None:
    request, recorded = pair["request"], pair["response"]
    response = httpx.post(f"{server.url}{pair['path']}", json=request, timeout=60, trust_env=False)
    assert response.status_code == 200, response.text
    ours = response.json()
    assert_schema("request", request)
    assert_answers(request, ours)
    assert list(ours) == list(recorded)
    assert list(ours["answers"]) == list(recorded["answers"])
    assert ours["model"] == (request["model"] if request["model"].startswith("jev-1.") else "openjev-nano-1")
    for name, theirs in recorded["answers"].items():
        answer = ours["answers"][name]
        assert list(answer) == list(theirs), "key order"
        for key, value in theirs.items():
            assert type(answer[key]) is type(value), (name, key)
        assert answer.get("legend") == theirs.get("legend")
        assert set(answer.get("probabilities", ())) == set(theirs.get("probabilities", ()))


def test_our_server_refuses_as_recorded(server: LiveServer, keyed_server: LiveServer) -> None:
    refused = {pair["status"]: pair for pair in COMPLETE if pair["status"] != 200}
    assert set(refused) == {401, 422}
    for status, pair in refused.items():
        url, key = (keyed_server.url, f"{KEY}-wrong") if status == 401 else (server.url, KEY)
        headers = {"authorization": f"Bearer {key}"}
        response = httpx.post(f"{url}/v1/systemone", json=pair["request"], headers=headers, timeout=60, trust_env=False)
        assert response.status_code == status
        assert response.json() == pair["response"]
        assert response.headers["content-type"] == pair["headers"]["content-type"]
        assert re.fullmatch("req_[0-9a-f]{32}", response.headers["x-typesafe-request-id"])


def test_our_server_lists_models_as_recorded(server: LiveServer) -> None:
    (pair,) = (pair for pair in COMPLETE if "models" in pair["response"])
    listed = httpx.get(f"{server.url}/v1/models", timeout=60, trust_env=False).json()
    assert_schema("models", listed)
    names = [model["name"] for model in listed["models"]]
    assert {model["name"] for model in pair["response"]["models"]} <= set(names)
    assert all(list(model) == list(pair["response"]["models"][0]) for model in listed["models"])


def test_the_index_lists_every_file() -> None:
    index = (RECORDED.parent / "README.md").read_text()
    rows = re.findall(r"^\| `([^`]+\.json)` \|.*?\| (\d+) \| (\d+) \|", index, re.MULTILINE)
    listed = {name: (int(total), int(complete)) for name, total, complete in rows}
    found: dict[str, tuple[int, int]] = {}
    for path in RECORDED.glob("*.json"):
        own = json.loads(path.read_text())["pairs"]
        found[path.name] = (len(own), sum(is_complete(pair) for pair in own))
    assert listed == found
    assert (sum(total for total, _ in found.values()), len(COMPLETE)) == (227, 54)
