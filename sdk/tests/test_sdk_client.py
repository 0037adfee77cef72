"""Both clients: what they send, what they make of responses and errors."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
import pickle
from typing import Any

import httpx
import openjev_sdk
import pytest
from mock_host import GOOD, REQUEST_ID, Script
from openjev_sdk import (
    APIConnectionError,
    APIError,
    APITimeoutError,
    AsyncClient,
    ChoiceAnswer,
    Client,
    Decision,
    Model,
    Noul,
    NoulAnswer,
    ResponseError,
    ScoreAnswer,
    UnknownAnswer,
    Usage,
    UsageError,
)
from stub_host import state, stub_host

ASK = {"q": Noul("?")}


def decide(*replies: Any, **settings: Any) -> Decision:
    with Client(transport=httpx.MockTransport(Script(list(replies))), max_retries=0, **settings) as client:
        return client.decide("state", ASK)


def decide_async(*replies: Any, **settings: Any) -> Decision:
    async def run() -> Decision:
        transport = httpx.MockTransport(Script(list(replies)))
        async with AsyncClient(transport=transport, max_retries=0, **settings) as client:
            return await client.decide("state", ASK)

    return asyncio.run(run())


both = pytest.mark.parametrize("ask", [decide, decide_async])


def with_answers(**answers: Any) -> dict[str, Any]:
    return {**GOOD, "answers": answers}


MIXED = with_answers(
    label={"type": "choice", "choice": "b", "confidence": 0.7, "probabilities": {"b": 0.85, "a": 0.15}},
    urgent={"type": "noul", "noul": 0.31},
    tone={
        "type": "score",
        "score": 1.2,
        "confidence": 0.6,
        "legend": {"0": "calm", "1": "annoyed", "2": {"very": "angry"}},
        "probabilities": {"0": 0.1, "1": 0.6, "2": 0.3},
    },
    spot={"type": "box", "box": {"top": 0.2}, "confidence": None},
)


@both
def test_typed_answers(ask: Any) -> None:
    decision = ask(MIXED)
    assert list(decision) == ["label", "urgent", "tone", "spot"]
    assert decision.model == "openjev-nano-1"
    assert decision.usage == Usage(12, 34)
    assert decision.request_id == REQUEST_ID
    assert decision.raw == MIXED
    assert decision["urgent"] == NoulAnswer(0.31)
    label, tone, spot = decision["label"], decision["tone"], decision["spot"]
    assert isinstance(label, ChoiceAnswer)
    assert (label.value, label.confidence, list(label.probabilities)) == ("b", 0.7, ["b", "a"])
    assert isinstance(tone, ScoreAnswer)
    assert (tone.value, tone.level, tone.legend[2], tone.probabilities[1]) == (1.2, 1, {"very": "angry"}, 0.6)
    assert spot == UnknownAnswer("box", MIXED["answers"]["spot"])
    assert (list(decision.nouls), list(decision.choices), list(decision.scores)) == (["urgent"], ["label"], ["tone"])


def test_decided() -> None:
    decision = decide(MIXED)
    assert decision["label"].decided(min_confidence=0.7) == "b"
    assert decision["label"].decided(min_confidence=0.71) is None
    assert decision["tone"].decided(0.6) == 1.2
    assert decision["tone"].decided(0.7) is None
    assert decision["urgent"].decided(0.69) is False
    assert decision["urgent"].decided(0.7) is None
    assert decision["spot"].decided(0.0) is None
    assert NoulAnswer(0.5).decided(0.5) is True


@pytest.mark.parametrize("answer", [{"type": "choice", "choice": "b"}, {"type": "score", "score": 1.0}])
@both
def test_an_answer_that_nobody_can_weigh_is_none(ask: Any, answer: dict[str, Any]) -> None:
    """Neither a confidence nor the probabilities that it follows from."""
    with pytest.raises(ResponseError, match=r"answers\.q\.confidence"):
        ask({"model": "m", "answers": {"q": {**answer, "confidence": None}}})


def test_answers_are_keys() -> None:
    decision, again = decide(MIXED), decide(MIXED)
    assert {*decision.values()} == {*again.values()}
    assert len({decision, again, *decision.values()}) == 5
    assert hash(decision["label"]) == hash(again["label"])


def test_a_closed_client_says_so() -> None:
    client = Client(transport=httpx.MockTransport(Script([GOOD])))
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.models()
    with pytest.raises(UsageError, match="closed"):
        client.decide("x", {"q": Noul("?")})

    async def scenario() -> None:
        other = AsyncClient(transport=httpx.MockTransport(Script([GOOD])))
        await other.aclose()
        with pytest.raises(UsageError, match="closed"):
            await other.models()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url", ["host", "ftp://host", "http://", "http://host:65536", "http://host:0", "http://host:x"]
)
def test_an_address_that_no_host_has_is_refused_at_once(url: str) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(UsageError, match="base_url"):
            client(url)


def test_a_decision_is_an_immutable_mapping() -> None:
    decision = decide(MIXED)
    assert dict(decision.items()) == decision.answers
    assert "other" not in decision
    assert pickle.loads(pickle.dumps(decision)) == decision == copy.deepcopy(decision)
    with pytest.raises(AttributeError):
        decision.model = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        decision.answers["q"] = NoulAnswer(1.0)  # type: ignore[index]


def test_what_only_openjev_sends() -> None:
    headers = {
        "x-openjev-fingerprint": "openjev-nano-1@abc/nano-label-v1/isolated/2/float32/none",
        "x-openjev-calibration": "none",
        "server-timing": 'queue;dur=0.5, model;desc="one, two";dur=12.25, odd, total;dur=.5.5, a;dur="3"',
    }
    decision = decide(httpx.Response(200, json=GOOD, headers=headers))
    assert decision.fingerprint == headers["x-openjev-fingerprint"]
    assert decision.calibration == "none"
    assert decision.timing["queue"] == 0.5
    assert decision.timing["a"] == 3.0
    assert "total" not in decision.timing


def test_hosts_that_send_less() -> None:
    answers = {
        "label": {"type": "choice", "choice": "b", "probabilities": {"b": 0.7, "a": 0.2, "c": 0.1}},
        "tone": {"type": "score", "score": 1, "probabilities": {"0": 0.65, "1": 0.35, "2": 0.0, "3": 0}},
        "odd": {},
    }
    decision = decide(httpx.Response(200, json={"model": "m", "answers": answers}))
    assert (decision.usage, decision.request_id, decision.fingerprint) == (Usage(), None, None)
    assert decision.calibration is None
    assert len(decision.timing) == 0
    assert decision["label"].confidence == pytest.approx((0.7 - 1 / 3) / (2 / 3))
    assert decision["tone"].confidence == pytest.approx(0.65)
    assert decision["odd"] == UnknownAnswer("", {})


@both
@pytest.mark.parametrize(
    ("body", "place"),
    [
        ([], "(body)"),
        ({**GOOD, "model": None}, "model"),
        ({**GOOD, "answers": None}, "answers"),
        ({"model": "m"}, "answers"),
        (with_answers(q="yes"), "answers.q"),
        (with_answers(q={"type": "noul", "noul": "0.5"}), "answers.q.noul"),
        (with_answers(q={"type": "noul", "noul": True}), "answers.q.noul"),
        (with_answers(q={"type": "choice"}), "answers.q.choice"),
        (with_answers(q={"type": "choice", "choice": "a", "probabilities": [1]}), "answers.q.probabilities"),
        (with_answers(q={"type": "choice", "choice": "a", "probabilities": {"a": "1"}}), "answers.q.probabilities.a"),
        (with_answers(q={"type": "score", "score": 1, "probabilities": {"low": 1}}), "answers.q.probabilities"),
        (with_answers(q={"type": "score", "probabilities": {"0": 1}}), "answers.q.score"),
        (with_answers(q={"type": "score", "score": 1, "confidence": "x"}), "answers.q.confidence"),
    ],
)
def test_an_unusable_body_is_an_error_that_names_the_place(ask: Any, body: Any, place: str) -> None:
    response = httpx.Response(200, json=body, headers={"x-typesafe-request-id": REQUEST_ID})
    with pytest.raises(ResponseError, match=r"not valid at ") as caught:
        ask(response)
    assert f"at {place} (" in str(caught.value)
    assert caught.value.body == body


@pytest.mark.parametrize("content", [b"", b"<html>", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_json_is_an_error(content: bytes) -> None:
    with pytest.raises(ResponseError):
        decide(httpx.Response(200, content=content))


@both
@pytest.mark.parametrize(
    ("status", "name"),
    [
        (302, "APIError"),
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (403, "PermissionDeniedError"),
        (404, "NotFoundError"),
        (405, "APIError"),
        (408, "RequestTimeoutError"),
        (413, "ContentTooLargeError"),
        (422, "UnprocessableEntityError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
        (503, "ServiceUnavailableError"),
        (529, "OverloadedError"),
        (599, "InternalServerError"),
    ],
)
def test_one_class_per_status_with_the_request_id_in_its_message(ask: Any, status: int, name: str) -> None:
    body = {"detail": {"error_type": "x", "message": "what went wrong"}}
    with pytest.raises(APIError) as caught:
        ask(httpx.Response(status, json=body, headers={"x-typesafe-request-id": REQUEST_ID}))
    error = caught.value
    assert type(error) is getattr(openjev_sdk, name)
    assert (error.status, error.body, error.request_id) == (status, body, REQUEST_ID)
    expected = f"POST http://127.0.0.1:8000/v1/systemone: {status} what went wrong (request id {REQUEST_ID})"
    assert str(error) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('"plain"', "plain"),
        ("not json", "not json"),
        ("", "(no body)"),
        ('{"error":"e","message":"m","detail":"d"}', "e"),
        ('{"error":{"message":"em"},"message":"m"}', "em"),
        ('{"message":"m","detail":"d"}', "m"),
        ('{"detail":"d"}', "d"),
        ('{"detail":{"message":"dm"}}', "dm"),
        ('{"detail":[{"loc":["body","a",0],"msg":"x"},{"loc":["body"],"msg":"y"},{"msg":"z"},{}]}', "a.0: x; y; z"),
        (
            '{"detail":{"error_type":"max_tokens_exceeded"}}',
            "max_tokens_exceeded: state and questions are longer than the host takes; shorten the state, or ask in "
            "several requests",
        ),
        ('{"detail":{"error_type":"other"}}', '{"detail":{"error_type":"other"}}'),
        ("x" * 300, "x" * 300),
        (json.dumps({"a": "x" * 300}), '{"a":"' + "x" * 194 + "…"),
    ],
)
def test_the_message_is_found_in_every_shape(body: str, message: str) -> None:
    with pytest.raises(APIError) as caught:
        decide(httpx.Response(400, content=body))
    assert caught.value.message == message


@both
def test_connection_failures(ask: Any) -> None:
    with pytest.raises(APIConnectionError, match=r"POST http://127\.0\.0\.1:8000/v1/systemone: refused") as caught:
        ask(httpx.ConnectError("refused"))
    assert isinstance(caught.value, ConnectionError)
    assert not isinstance(caught.value, APITimeoutError)
    with pytest.raises(APITimeoutError) as timed_out:
        ask(httpx.ReadTimeout("late"))
    assert isinstance(timed_out.value, TimeoutError)


def test_credentials_in_a_url_stay_out_of_messages() -> None:
    for reply in (httpx.ConnectError("refused"), httpx.Response(400, json={})):
        with pytest.raises(openjev_sdk.OpenJevError) as caught:
            decide(reply, base_url="http://user:hidden@host")
        assert "hidden" not in str(caught.value)


def test_headers_and_timeout_of_a_request() -> None:
    script = Script([GOOD])
    settings: dict[str, Any] = {"headers": {"X-Team": "a"}, "timeout": 3.0, "api_key": "k"}
    with Client(transport=httpx.MockTransport(script), **settings) as client:
        client.decide("s", ASK)
        client.decide("s", ASK, timeout=1.5, model="other")
    first, second = script.requests
    assert first.headers["accept"] == "application/json"
    assert first.headers["accept-encoding"] == "gzip, deflate"
    assert first.headers["content-type"] == "application/json"
    assert first.headers["user-agent"].startswith("openjev-sdk/")
    assert first.headers["x-team"] == "a"
    assert "content-encoding" not in first.headers
    assert first.extensions["timeout"]["read"] == 3.0
    assert second.extensions["timeout"]["read"] == 1.5
    assert script.body()["model"] == "other"


def test_gzip_responses_are_read() -> None:
    content = gzip.compress(json.dumps(GOOD).encode())
    response = httpx.Response(200, content=content, headers={"content-encoding": "gzip"})
    assert decide(response)["q"].value is True


MODELS = {
    "object": "list",
    "data": [],
    "models": [{"name": "jev-latest", "description": "d", "release_date": "2026-09-10"}, {"name": "x", "created": 1}],
}


def test_models() -> None:
    script = Script([httpx.Response(200, json=MODELS)])
    expected = (Model("jev-latest", "d", "2026-09-10"), Model("x"))
    with Client(transport=httpx.MockTransport(script)) as client:
        assert client.models() == expected
    assert (script.requests[0].method, script.requests[0].url.path) == ("GET", "/v1/models")

    async def run() -> Any:
        async with AsyncClient(transport=httpx.MockTransport(Script([httpx.Response(200, json=MODELS)]))) as client:
            return await client.models()

    assert asyncio.run(run()) == expected


@pytest.mark.parametrize("body", [{}, {"models": [{}]}, {"models": {}}, []])
def test_unusable_models(body: Any) -> None:
    with (
        Client(transport=httpx.MockTransport(Script([httpx.Response(200, json=body)]))) as client,
        pytest.raises(ResponseError),
    ):
        client.models()


def test_closing_closes_the_transport() -> None:
    class Transport(httpx.BaseTransport):
        closed = False

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, json=GOOD)

        def close(self) -> None:
            self.closed = True

    transport = Transport()
    with Client(transport=transport) as client:
        client.decide("s", ASK)
        assert not transport.closed
    assert transport.closed


def test_errors_survive_pickling() -> None:
    with pytest.raises(APIError) as caught:
        decide(httpx.Response(429, json={"detail": "slow"}, headers={"x-typesafe-request-id": REQUEST_ID}))
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (type(copied), str(copied), copied.request_id) == (type(caught.value), str(caught.value), REQUEST_ID)
    schema_error = openjev_sdk.SchemaError("$.a", "no")
    assert str(pickle.loads(pickle.dumps(schema_error))) == str(schema_error) == "$.a: no"


def test_on_a_real_socket() -> None:
    """Connections dropped and replies that come too late are retried; the same connection serves the next call."""
    with stub_host() as host, Client(host.url + "/v1", timeout=0.3) as client:
        decision = client.decide(state("socket", {"drop": True}, {"hang": True}, {}), ASK)
        assert decision["urgent"] == NoulAnswer(0.31)
        assert len(host.requests["socket"]) == 3
        assert client.models()[0].name == "jev-latest"
        with pytest.raises(APITimeoutError):
            client.decide(state("late", {"hang": True}), ASK, timeout=0.05)
        results = list(client.map([state(str(n)) for n in range(50)], ASK))
        assert [len(result.answers) for result in results] == [3] * 50
