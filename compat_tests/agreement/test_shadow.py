"""The shadow proxy on real sockets: what the client gets is the upstream's, whatever our engine does."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agreement.stubs import answer, body, served, until
from openjev_compat.metrics import Thresholds
from openjev_compat.mirror import Mirror, PairFiles
from openjev_compat.report import build_report
from openjev_compat.shadow import ShadowSettings, create_shadow_app
from openjev_compat.store import load_fixtures
from openjev_sdk import AsyncClient, UsageError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route

ANSWER = (
    b'{"model":"jev-1.13.0",  "answers":{"noul":{"type":"noul","noul":0.31}},'
    b'"usage":{"input_tokens":300,"output_tokens":20}}'
)
Handler = Callable[[httpx.Request], Any]


def upstream(request: Request, received: bytes) -> Response:
    """Answers, errors and echoes with headers of its own."""
    headers = {"x-typesafe-request-id": "req_" + "0" * 32, "server": "envoy", "date": "then", "set-cookie": "a=1"}
    if request.url.path == "/v1/models":
        return Response(b'{"models":[]}', headers=headers, media_type="application/json")
    if request.url.path == "/echo":
        sent = {"query": request.url.query, "headers": [[k, v] for k, v in request.headers.items()]}
        return Response(json.dumps({**sent, "body": received.decode()}), 202, headers)
    if request.url.path == "/empty":
        return Response(status_code=204, headers=headers)
    if request.url.path == "/chunks":
        return StreamingResponse(iter([b"one ", b"two"]), headers=headers)
    if request.headers.get("authorization") != "Bearer theirs":
        return Response(b'{"detail":"no key"}', 403, headers, "application/json")
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            gzip.compress(ANSWER, mtime=0), 200, {**headers, "content-encoding": "gzip"}, "application/json"
        )
    return Response(ANSWER, 200, headers, "application/json")


async def _upstream(request: Request) -> Response:
    return upstream(request, await request.body())


UPSTREAM = Starlette(routes=[Route("/{path:path}", _upstream, methods=["GET", "HEAD", "POST", "PUT", "DELETE"])])


@contextmanager
def shadowed(directory: Path, engine: Handler, **settings: Any) -> Iterator[tuple[str, str, Mirror]]:
    """URLs of the upstream and of the proxy before it, and the proxy's mirror."""
    with served(UPSTREAM) as origin:
        client = AsyncClient("http://engine.test", "ours", transport=httpx.MockTransport(engine), max_retries=0)
        app = create_shadow_app(
            ShadowSettings(upstream=origin, sample=1.0, **({"timeout_s": 10.0} | settings)),
            client,
            PairFiles(directory),
        )
        with served(app) as proxy:
            yield origin, proxy, app.state.mirror


def raw(url: str, path: str, **request: Any) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    with httpx.Client(base_url=url, trust_env=False) as client, client.stream(**({"url": path} | request)) as response:
        headers = [(name.lower(), value) for name, value in response.headers.raw]
        return response.status_code, sorted(headers), b"".join(response.iter_raw())


AUTHORISED = {"authorization": "Bearer theirs"}
COMPRESSED = {**AUTHORISED, "accept-encoding": "gzip"}


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("/v1/models", {"method": "GET"}),
        ("/v1/models", {"method": "HEAD"}),
        ("/empty", {"method": "GET"}),
        ("/v1/systemone", {"method": "POST", "json": body("noul"), "headers": AUTHORISED}),
        (
            "/v1/systemone",
            {"method": "POST", "json": body("noul"), "headers": COMPRESSED},
        ),
        ("/v1/systemone", {"method": "POST", "json": body("noul")}),
        ("/v1/systemone", {"method": "POST", "content": b"not json", "headers": AUTHORISED}),
        ("/v1/nowhere", {"method": "DELETE", "headers": {**AUTHORISED, "accept-encoding": "identity"}}),
    ],
)
def test_status_headers_and_bytes_are_the_upstreams(tmp_path: Path, path: str, request_: dict[str, Any]) -> None:
    with shadowed(tmp_path, answer) as (origin, proxy, _):
        assert raw(proxy, path, **request_) == raw(origin, path, **request_)


def test_what_comes_in_chunks_arrives_whole(tmp_path: Path) -> None:
    with shadowed(tmp_path, answer) as (_, proxy, _mirror):
        status, headers, content = raw(proxy, "/chunks", method="GET")
        assert (status, content) == (200, b"one two")
        assert (b"content-length", b"7") in headers


def test_the_upstream_gets_the_clients_request(tmp_path: Path) -> None:
    with shadowed(tmp_path, answer) as (origin, proxy, _):
        request: dict[str, Any] = {
            "method": "PUT",
            "content": b"\x00 bytes" * 3,
            "headers": {"x-typesafe-sdk": "typesafe-sdk/0.7.5", "user-agent": "mine", "accept": "application/json"},
        }
        seen = [json.loads(raw(url, "/echo?a=%20b&c", **request)[2]) for url in (origin, proxy)]
    for one in seen:
        hop = {"host", "connection"}
        one["headers"] = sorted(header for header in one["headers"] if header[0] not in hop)
    assert seen[0] == seen[1]


def test_the_pairs_are_what_agree_reads(tmp_path: Path) -> None:
    asked: list[httpx.Request] = []

    def engine(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return answer(request)

    with shadowed(tmp_path, engine) as (_, proxy, mirror):
        encodings = ("identity", "gzip")
        for encoding in encodings:
            headers = {**AUTHORISED, "accept-encoding": encoding}
            assert raw(proxy, "/v1/systemone", method="POST", json=body("noul"), headers=headers)[0] == 200
        squeezed = gzip.compress(json.dumps(body("noul")).encode())
        headers = {**AUTHORISED, "content-encoding": "gzip", "content-type": "application/json"}
        raw(proxy, "/v1/systemone", method="POST", content=squeezed, headers=headers)
        raw(proxy, "/v1/systemone", method="POST", json=body("noul"))  # refused: nothing to compare
        until(lambda: mirror.mirrored == 3)
        assert (mirror.failed, mirror.dropped) == (0, 0)
    assert {request.headers["authorization"] for request in asked} == {"Bearer ours"}
    theirs, ours = load_fixtures([tmp_path / "upstream.jsonl"]), load_fixtures([tmp_path / "engine.jsonl"])
    assert [fixture.model for fixture in theirs] == ["jev-1.13.0"] * 3
    assert b"theirs" not in (tmp_path / "upstream.jsonl").read_bytes()
    report = build_report(ours, theirs, names=("ours", "upstream"), thresholds=Thresholds())
    delta = report.overall.estimate("noul_delta")
    assert delta is not None
    assert delta.n == 3
    assert delta.value == pytest.approx(0.75 - 0.31)


def refuses(_: httpx.Request) -> httpx.Response:
    return httpx.Response(500, json={"detail": "broken"})


def is_gone(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("nobody there", request=request)


def talks_nonsense(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"model": "m", "answers": {"noul": {"type": "noul", "noul": "high"}}})


def raises(_: httpx.Request) -> httpx.Response:
    raise RuntimeError("a bug of ours")


@pytest.mark.parametrize("engine", [refuses, is_gone, talks_nonsense, raises])
def test_an_error_of_ours_never_reaches_the_client(tmp_path: Path, engine: Handler) -> None:
    request: dict[str, Any] = {"method": "POST", "json": body("noul"), "headers": AUTHORISED}
    with shadowed(tmp_path, engine) as (origin, proxy, mirror):
        for _ in range(3):
            assert raw(proxy, "/v1/systemone", **request) == raw(origin, "/v1/systemone", **request)
        until(lambda: mirror.failed == 3)
    assert not (tmp_path / "engine.jsonl").exists()


def test_files_that_cannot_be_written_never_reach_the_client(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where the directory should be", encoding="utf-8")
    request: dict[str, Any] = {"method": "POST", "json": body("noul"), "headers": AUTHORISED}
    with shadowed(tmp_path / "taken", answer) as (_, proxy, mirror):
        assert raw(proxy, "/v1/systemone", **request)[0] == 200
        until(lambda: mirror.failed == 1)


def test_a_slow_engine_costs_the_client_nothing_and_the_queue_stays_bounded(tmp_path: Path) -> None:
    async def sleeps(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(60)
        return answer(request)

    request: dict[str, Any] = {"method": "POST", "json": body("noul"), "headers": AUTHORISED}
    with shadowed(tmp_path, sleeps, queued=2, timeout_s=0.5) as (_, proxy, mirror):
        started = time.monotonic()
        with httpx.Client(base_url=proxy, trust_env=False) as client:
            for _ in range(20):
                response = client.request(url="/v1/systemone", **request)
                assert (response.status_code, response.content) == (200, ANSWER)
        assert time.monotonic() - started < 10
        assert mirror.dropped == 17  # one with the engine, two waiting


def test_an_upstream_that_is_gone_or_silent_is_a_gateway_error(tmp_path: Path) -> None:
    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("silent", request=request)

    for handler, status in ((gone, 502), (silent, 504)):
        engine = AsyncClient("http://engine.test", transport=httpx.MockTransport(answer))
        settings = ShadowSettings(upstream="http://upstream.test")
        app = create_shadow_app(settings, engine, PairFiles(tmp_path), transport=httpx.MockTransport(handler))
        with served(app) as proxy:
            response = httpx.get(f"{proxy}/v1/models", trust_env=False)
        assert response.status_code == status
        assert "upstream" in response.json()["detail"]


def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    with shadowed(tmp_path, answer, max_body_bytes=100) as (_, proxy, _mirror):
        assert httpx.post(f"{proxy}/v1/systemone", content=b"x" * 101, trust_env=False).status_code == 413


def test_only_the_sample_is_mirrored(tmp_path: Path) -> None:
    settings = {"sample": 0.3, "seed": 5}
    with served(UPSTREAM) as origin:
        engine = AsyncClient("http://engine.test", transport=httpx.MockTransport(answer))
        app = create_shadow_app(ShadowSettings(upstream=origin, **settings), engine, PairFiles(tmp_path))  # type: ignore[arg-type]
        with served(app) as proxy, httpx.Client(base_url=proxy, trust_env=False, headers=AUTHORISED) as client:
            for _ in range(60):
                client.post("/v1/systemone", json=body("noul"))
    assert 5 <= len(load_fixtures([tmp_path / "engine.jsonl"])) <= 32


@pytest.mark.parametrize("noul", ["null", "NaN", "1.7", '"yes"'])
def test_a_pair_that_agree_would_not_read_is_not_written(tmp_path: Path, noul: str) -> None:
    odd = b'{"model":"m","answers":{"noul":{"type":"noul","noul":%s}},"usage":{"input_tokens":-1}}' % noul.encode()

    def upstream_(_: Request) -> Response:
        return Response(odd, 200, media_type="application/json")

    with served(Starlette(routes=[Route("/{path:path}", upstream_, methods=["POST"])])) as origin:
        client = AsyncClient("http://engine.test", "ours", transport=httpx.MockTransport(answer), max_retries=0)
        app = create_shadow_app(
            ShadowSettings(upstream=origin, sample=1.0, timeout_s=10.0), client, PairFiles(tmp_path / "pairs")
        )
        with served(app) as proxy:
            assert httpx.post(f"{proxy}/v1/systemone", json=body("noul")).content == odd
            until(lambda: app.state.mirror.failed == 1)
    assert not (tmp_path / "pairs").exists()


def test_a_line_that_a_kill_cut_off_is_dropped_at_the_next_start(tmp_path: Path) -> None:
    with shadowed(tmp_path, answer) as (_, proxy, mirror):
        httpx.post(f"{proxy}/v1/systemone", json=body("noul"), headers=AUTHORISED)
        until(lambda: mirror.mirrored == 1)
    for path in PairFiles(tmp_path).paths:
        path.write_bytes(path.read_bytes() + path.read_bytes()[:40])
    with shadowed(tmp_path, answer) as (_, proxy, mirror):
        httpx.post(f"{proxy}/v1/systemone", json=body("noul"), headers=AUTHORISED)
        until(lambda: mirror.mirrored == 1)
    for path in PairFiles(tmp_path).paths:
        assert len(load_fixtures([path])) == 2


def test_what_concerns_one_connection_stays_there(tmp_path: Path) -> None:
    seen: list[httpx.Headers] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers)
        return httpx.Response(304, headers={"connection": "X-Hop", "x-hop": "1", "etag": "a", "content-length": "55"})

    engine = AsyncClient("http://engine.test", transport=httpx.MockTransport(answer))
    settings = ShadowSettings(upstream="http://upstream.test")
    app = create_shadow_app(settings, engine, PairFiles(tmp_path), transport=httpx.MockTransport(handler))
    with served(app) as proxy:
        status, headers, content = raw(
            proxy, "/x", method="GET", headers={"connection": "keep-alive, X-Mine", "x-mine": "1", "x-other": "2"}
        )
    assert (status, headers, content) == (304, [(b"etag", b"a")], b"")
    assert "x-other" in seen[0]
    assert "x-mine" not in seen[0]


def test_a_client_that_leaves_before_its_request_is_whole_is_no_error(tmp_path: Path) -> None:
    engine = AsyncClient("http://engine.test", transport=httpx.MockTransport(answer))
    settings = ShadowSettings(upstream="http://upstream.test")
    app = create_shadow_app(settings, engine, PairFiles(tmp_path), transport=httpx.MockTransport(answer))

    async def receive() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def send(_: Any) -> None:
        """To nobody."""

    path = "/v1/systemone"
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
    asyncio.run(app(scope, receive, send))


@pytest.mark.parametrize("path", ["/a/../b/./c", "/a%2Fb//c", "/..", "/v1/../v1/models?x=%2e%2e"])
def test_the_path_goes_on_as_the_client_wrote_it(tmp_path: Path, path: str) -> None:
    seen: list[bytes] = []

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append(scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b""))
            await Response(b"")(scope, receive, send)

    engine = AsyncClient("http://engine.test", transport=httpx.MockTransport(answer))
    with served(Starlette(routes=[Mount("/", echo)])) as origin:
        app = create_shadow_app(ShadowSettings(upstream=f"{origin}/base/"), engine, PairFiles(tmp_path))
        with served(app) as proxy:
            status, _, _ = raw(proxy, "/", method="GET", extensions={"target": path.encode()})
    assert status == 200
    assert seen == [b"/base" + path.encode()]


@pytest.mark.parametrize(
    "upstream", ["", "upstream.test", "ftp://upstream.test", "http://:80", "http://h:65536", "http://h:x"]
)
def test_an_upstream_that_is_no_address_is_refused(upstream: str) -> None:
    with pytest.raises(UsageError, match="upstream"):
        ShadowSettings(upstream=upstream)
