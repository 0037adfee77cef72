"""The SDK's recording transports write what `agree` reads, and change nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from agreement.stubs import answer
from openjev_compat.store import load_fixtures
from openjev_sdk import AsyncClient, BadRequestError, Choice, Client, Noul, Score
from openjev_sdk._recording import AsyncRecordingTransport, RecordingTransport

QUESTIONS: Mapping[str, Noul | Choice | Score] = {
    "n": Noul("Late?"),
    "c": Choice("Which?", ["a", "b", "c"]),
    "s": Score("How?", ["none", "some", "all"]),
}
URL, KEY = "http://user:secret@stub.test", "key-that-stays-out"


def test_a_running_client_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    transport = RecordingTransport(path, httpx.MockTransport(answer), workflow="mine", licence="ours")
    with Client(URL, KEY, transport=transport) as client:
        decision = client.decide({"text": "é"}, QUESTIONS)
        client.decide("again", {"n": Noul("Late?")})
    kept = load_fixtures([path])
    assert [fixture.type for fixture in kept] == ["noul", "choice", "score", "noul"]
    assert kept[0].request is not None
    assert kept[0].request.state == {"text": "é"}
    assert [fixture.answer for fixture in kept[:3]] == list(decision.raw["answers"].values())
    assert {fixture.case for fixture in kept[:3]} == {kept[0].case} != {kept[3].case}
    assert kept[0].usage is not None
    assert kept[0].usage.questions == 3
    assert kept[0].model == "stub-1"
    text = path.read_text(encoding="utf-8")
    assert KEY not in text
    assert "secret" not in text


def test_the_async_client_too_and_compressed_answers(tmp_path: Path) -> None:
    def compressed(request: httpx.Request) -> httpx.Response:
        plain = answer(request)
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(gzip.compress(plain.content)))

    async def run() -> None:
        transport = AsyncRecordingTransport(tmp_path / "kept.jsonl", httpx.MockTransport(compressed))
        async with AsyncClient(URL, transport=transport) as client:
            decision = await client.decide("x", QUESTIONS)
            assert decision.nouls["n"].probability == 0.75

    asyncio.run(run())
    assert len(load_fixtures([tmp_path / "kept.jsonl"])) == 3


def test_errors_and_other_requests_are_not_recorded(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"

    def refuses(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"models": []})
        return httpx.Response(400, json={"detail": "no"})

    with Client(URL, transport=RecordingTransport(path, httpx.MockTransport(refuses))) as client:
        client.models()
        with pytest.raises(BadRequestError):
            client.decide("x", QUESTIONS)
    assert not path.exists()


def test_a_record_that_cannot_be_written_does_not_break_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    transport = RecordingTransport(tmp_path / "absent" / "kept.jsonl", httpx.MockTransport(answer))
    with Client(URL, transport=transport) as client:
        assert client.decide("x", QUESTIONS).choices["c"].choice == "a"
    assert "not recorded" in caplog.text


def test_a_host_that_answers_nonsense_is_left_to_the_client(tmp_path: Path) -> None:
    def odd(request: httpx.Request) -> httpx.Response:
        answers = {"n": {"type": "noul", "noul": 0.5}, "extra": {"type": "noul", "noul": 0.5}, "c": {"type": "box"}}
        return httpx.Response(200, json={"model": "m", "answers": answers})

    path = tmp_path / "kept.jsonl"
    with Client(URL, transport=RecordingTransport(path, httpx.MockTransport(odd))) as client:
        client.decide("x", QUESTIONS)
    assert [json.loads(line)["type"] for line in path.read_text(encoding="utf-8").splitlines()] == ["noul"]


@pytest.mark.parametrize("noul", [None, True, -0.1, 1.5])
def test_what_agree_would_not_read_is_not_written(tmp_path: Path, noul: object) -> None:
    def odd(_: httpx.Request) -> httpx.Response:
        answers = {"n": {"type": "noul", "noul": noul}, "s": {"type": "score", "score": 1, "probabilities": {"0": 1}}}
        return httpx.Response(200, json={"model": "m", "answers": answers, "usage": {"input_tokens": -1}})

    path = tmp_path / "kept.jsonl"
    with httpx.Client(base_url=URL, transport=RecordingTransport(path, httpx.MockTransport(odd))) as client:
        questions = {"n": {"type": "noul", "instructions": "?"}, "s": {"type": "score", "criteria": ["a", "b"]}}
        client.post("/v1/systemone", json={"state": "x", "questions": questions})
    assert [fixture.type for fixture in load_fixtures([path])] == ["score"]


SENT = {"state": "x", "questions": {"n": {"type": "noul", "instructions": "Late?"}}}


def _pieces(content: bytes) -> Iterator[bytes]:
    yield content[:10]
    yield content[10:]


def test_streams_stay_streams(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"

    def whole(request: httpx.Request) -> httpx.Response:
        request.read()
        squeezed = httpx.ByteStream(gzip.compress(answer(request).content))
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=squeezed)

    def streaming(request: httpx.Request) -> httpx.Response:
        request.read()
        return httpx.Response(200, content=_pieces(answer(request).content))

    for handler in (whole, streaming):
        with httpx.Client(base_url=URL, transport=RecordingTransport(path, httpx.MockTransport(handler))) as client:
            body = json.dumps(SENT).encode()
            with client.stream("POST", "/v1/systemone", content=_pieces(body)) as response:
                received = b"".join(response.iter_raw())
            assert received
            assert response.elapsed.total_seconds() >= 0
    assert [fixture.type for fixture in load_fixtures([path])] == ["noul", "noul"]


def test_streams_stay_streams_for_asyncio(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"

    async def pieces(content: bytes) -> AsyncIterator[bytes]:
        for piece in _pieces(content):
            yield piece

    async def streaming(request: httpx.Request) -> httpx.Response:
        await request.aread()
        return httpx.Response(200, content=pieces(answer(request).content))

    async def run() -> None:
        transport = AsyncRecordingTransport(path, httpx.MockTransport(streaming))
        async with httpx.AsyncClient(base_url=URL, transport=transport) as client:
            body = pieces(json.dumps(SENT).encode())
            async with client.stream("POST", "/v1/systemone", content=body) as response:
                assert [piece async for piece in response.aiter_raw()]
            assert response.elapsed.total_seconds() >= 0

    asyncio.run(run())
    assert [fixture.type for fixture in load_fixtures([path])] == ["noul"]
