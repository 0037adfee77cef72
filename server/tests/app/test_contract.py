"""The validation matrix and the answers themselves, on a real socket."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from app_support import BODY, CHOICE, FIXTURES, NOUL, SCORE, Running, Serve

MATRIX: dict[str, dict[str, Any]] = json.loads((FIXTURES / "validation_matrix.json").read_text())
BY_NAME = {
    "GET systemone": ("GET", "/v1/systemone"),
    "POST models": ("POST", "/v1/models"),
    "unknown path": ("GET", "/v1/nothing"),
    "trailing slash": ("POST", "/v1/systemone/"),
}


def send(client: httpx.Client, name: str, case: dict[str, Any]) -> httpx.Response:
    if name in BY_NAME:
        method, path = BY_NAME[name]
        return client.request(method, path, json=BODY if name == "trailing slash" else None)
    if "raw" in case:
        return client.post("/v1/systemone", content=case["raw"].encode(), headers=case.get("headers", {}))
    return client.post("/v1/systemone", json=case["body"])


@pytest.mark.parametrize("name", MATRIX)
def test_the_validation_matrix(plain: Running, name: str) -> None:
    case = MATRIX[name]
    response = send(plain.client, name, case)
    if case.get("lenient") and response.status_code == 200:
        return
    assert response.status_code == case["status"]
    assert response.json() == case["response"]
    if case["status"] == 405:
        assert response.headers["allow"] == case["headers"]["allow"]


def test_an_answer_of_every_type(plain: Running) -> None:
    response = plain.ask()
    body = response.json()
    assert list(body) == ["model", "answers", "usage"]
    assert body["model"] == "openjev-nano-1"
    assert list(body["answers"]) == ["urgent", "team", "anger"]
    assert list(body["answers"]["urgent"]) == ["type", "noul"]
    assert list(body["answers"]["team"]) == ["type", "choice", "confidence", "probabilities"]
    assert list(body["answers"]["team"]["probabilities"]) == ["billing", "technical"]
    assert list(body["answers"]["anger"]) == ["type", "score", "confidence", "legend", "probabilities"]
    assert b": " not in response.content
    assert b", " not in response.content


def test_the_same_question_gets_the_same_answer(plain: Running) -> None:
    alone = plain.ask({**BODY, "questions": {"x": CHOICE}}).json()["answers"]["x"]
    assert plain.ask().json()["answers"]["team"] == alone


@pytest.mark.parametrize("path", ["/v1/v1/systemone", "/v1/v1/systemone/", "/v1/systemone/"])
def test_courtesy_paths(plain: Running, path: str) -> None:
    assert plain.client.post(path, json=BODY).json() == plain.ask().json()


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/", "/v1/v1/models"])
def test_models(plain: Running, path: str) -> None:
    names = [model["name"] for model in plain.client.get(path).json()["models"]]
    assert names == ["jev-latest", "jev-preview", "openjev-latest", "openjev-nano-1"]


@pytest.mark.parametrize(("model", "answered"), [("jev-1.13.0", "jev-1.13.0"), ("jev-preview", "openjev-nano-1")])
def test_model_names(plain: Running, model: str, answered: str) -> None:
    assert plain.ask({**BODY, "model": model}).json()["model"] == answered


@pytest.mark.parametrize("model", ["jev-1.13", "", "gpt"])
def test_unknown_models(plain: Running, model: str) -> None:
    response = plain.ask({**BODY, "model": model})
    assert response.status_code == 400
    assert response.json()["detail"] == {"error_type": "api_usage_error", "message": f"Unknown model: {model}"}


def test_pinned_models_can_be_turned_off(serve: Serve) -> None:
    with serve(accept_pinned_models=False) as running:
        assert running.ask({**BODY, "model": "jev-1.13.0"}).status_code == 400


def test_unknown_fields_can_be_ignored(serve: Serve) -> None:
    with serve(unknown_fields="ignore") as running:
        assert running.ask({**BODY, "stream": False}).status_code == 200


def test_a_request_at_the_limits_of_the_contract(plain: Running) -> None:
    options = {f"option {i}": None for i in range(255)}
    questions = {
        "c": {"type": "choice", "criteria": options},
        "s": {**SCORE, "criteria": [f"level {i}" for i in range(10)]},
    }
    assert plain.ask({**BODY, "questions": questions}).status_code == 200
    one = {"c": {"type": "choice", "criteria": {"only": None}}, "s": {"type": "score", "criteria": ["only"]}}
    answers = plain.ask({**BODY, "questions": one}).json()["answers"]
    assert answers["c"]["confidence"] == 1
    assert answers["s"]["score"] == 0


def test_many_questions(serve: Serve) -> None:
    with serve(max_total_tokens=100_000) as running:
        questions = {f"q{i}": {**NOUL, "instructions": f"Is it number {i}?"} for i in range(1100)}
        response = running.ask({**BODY, "questions": questions})
        assert list(response.json()["answers"]) == list(questions)


def test_images_are_refused_politely(plain: Running) -> None:
    for body in (
        {**BODY, "assets": {"pic": {"type": "image", "format": "jpg", "data_base64": "AAAA"}}},
        {**BODY, "questions": {"where": {"type": "box", "instructions": "Where is the cat?"}}},
    ):
        response = plain.ask(body)
        assert response.status_code == 400
        assert response.json()["detail"]["error_type"] == "api_usage_error"


def test_open_endpoints(plain: Running) -> None:
    assert plain.client.get("/health").json() == {"status": "ok"}
    assert plain.client.get("/ready").json() == {"status": "ready"}
    description = plain.client.get("/openapi.json").json()
    assert description["openapi"].startswith("3.1")
    assert {"/v1/systemone", "/v1/models"} <= description["paths"].keys()
