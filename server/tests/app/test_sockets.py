"""Raw bytes on a socket: whatever comes in, an HTTP answer goes out."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import zstandard
from app_support import BODY, REQUEST_ID, Running, Serve
from openjev_server.engine.fake import FakeEngine

LIMIT = 200_000
VALID = json.dumps(BODY).encode()


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """A client that writes what it is told and reads answers one by one."""

    def __init__(self, running: Running) -> None:
        self.socket = socket.create_connection(running.address, timeout=10)
        self.file = self.socket.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, head: bool = False) -> Answer:
        status = int(self.file.readline().split(b" ")[1])
        headers: dict[str, str] = {}
        while (line := self.file.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(": ")
            headers[name] = value
        if status == 100:
            return Answer(status, headers, b"")
        assert REQUEST_ID.fullmatch(headers["x-typesafe-request-id"])
        body = b"" if head else self.file.read(int(headers["content-length"]))
        return Answer(status, headers, body)


def post(body: bytes, *lines: str, length: bool = True) -> bytes:
    headers = ["POST /v1/systemone HTTP/1.1", "Host: x", *lines, *([f"Content-Length: {len(body)}"] if length else [])]
    return "\r\n".join(headers).encode() + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def small(serve: Serve) -> Iterator[Running]:
    with serve(max_body_bytes=LIMIT, keep_alive_s=20) as running:
        yield running


JSON = "Content-Type: application/json"
DEEP = b'{"state":' + b"[" * 50_000 + b"]" * 50_000 + b',"model":"jev-latest","questions":{}}'
LONELY = {"\ud83d": {"type": "choice", "criteria": {"\udc00": "\ud800", "b": None}}}
SURROGATE = json.dumps({**BODY, "questions": LONELY})
UPGRADE = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAA")

CASES: dict[str, tuple[bytes, set[int]]] = {
    "valid": (post(VALID, JSON), {200}),
    "no content type": (post(VALID), {200, 422}),
    "bom": (post(b"\xef\xbb\xbf" + VALID, JSON), {200, 422}),
    "charset": (post(VALID, "Content-Type: application/json; charset=utf-8"), {200}),
    "odd content type": (post(VALID, "Content-Type: ;;;=\x7f"), {200, 400, 422}),
    "utf-16": (post(VALID.decode().encode("utf-16"), JSON), {422}),
    "broken utf-8": (post(b'{"state":"\xff\xfe"}', JSON), {422}),
    "nan": (post(b'{"state":[NaN],"model":"jev-latest","questions":{}}', JSON), {422}),
    "infinity": (post(b'{"state":[1e999],"model":"jev-latest","questions":{}}', JSON), {422}),
    "huge integer": (post(b'{"state":[' + b"9" * 9000 + b'],"model":"m","questions":{}}', JSON), {422}),
    "duplicate keys": (post(b'{"model":"x",' + VALID[1:], JSON), {200, 422}),
    "depth bomb": (post(DEEP, JSON), {422}),
    "lone surrogates": (post(SURROGATE.encode(), JSON), {200, 422}),
    "surrogate model": (post(json.dumps({**BODY, "model": "\ud83d"}).encode(), JSON), {400, 422}),
    "nul": (post(json.dumps({**BODY, "state": "\0"}).encode(), JSON), {200}),
    "empty": (post(b"", JSON), {422}),
    "no length": (post(b"", JSON, length=False), {422}),
    "too large": (post(b"x" * (LIMIT + 1), JSON), {413}),
    "zstd": (post(zstandard.compress(VALID), JSON, "Content-Encoding: zstd"), {200}),
    "gzip": (post(gzip.compress(VALID), JSON, "Content-Encoding: gzip"), {200}),
    "deflate": (post(zlib.compress(VALID), JSON, "Content-Encoding: deflate"), {200}),
    "zip bomb": (post(gzip.compress(b" " * 10 * LIMIT), JSON, "Content-Encoding: gzip"), {413}),
    "zstd bomb": (post(zstandard.compress(b" " * 10 * LIMIT), JSON, "Content-Encoding: zstd"), {413}),
    "not gzip": (post(VALID, JSON, "Content-Encoding: gzip"), {400, 422}),
    "cut gzip": (post(gzip.compress(VALID)[:-9], JSON, "Content-Encoding: gzip"), {400, 422}),
    "unknown encoding": (post(VALID, JSON, "Content-Encoding: br"), {400, 415, 422}),
    "multipart": (post(b"--B\r\n\r\nx\r\n--B--", "Content-Type: multipart/form-data; boundary=B"), {400, 422}),
    "multipart without boundary": (post(b"x", "Content-Type: multipart/form-data"), {400, 422}),
    "many headers": (post(VALID, JSON, *(f"X-{i}: {i}" for i in range(500))), {200}),
    "upgrade": (post(VALID, JSON, *UPGRADE), {200}),
    "upgrade without a body": (
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        {200},
    ),
    "websocket": (post(VALID, JSON, "Connection: Upgrade", "Upgrade: websocket"), {200}),
    "latin-1 header": (post(VALID, JSON, "X-Name: \xe9"), {200}),
    "odd path": (b"GET /%ff%00/..//v1 HTTP/1.1\r\nHost: x\r\n\r\n", {404}),
    "query": (b"GET /v1/models?x=%ff&y HTTP/1.1\r\nHost: x\r\n\r\n", {200}),
    "absolute": (b"GET http://x/v1/models HTTP/1.1\r\nHost: x\r\n\r\n", {200}),
    "delete": (b"DELETE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", {405}),
    "options": (b"OPTIONS /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", {405}),
    "options star": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", {400, 404}),
}


@pytest.mark.parametrize("name", CASES)
def test_every_request_is_answered_and_the_connection_goes_on(small: Running, name: str) -> None:
    data, statuses = CASES[name]
    with Wire(small) as wire:
        wire.send(data)
        answer = wire.answer()
        assert answer.status in statuses, answer
        assert answer.status == 200 or "detail" in answer.json()
        if answer.headers.get("connection") != "close":
            wire.send(post(VALID, JSON))
            assert wire.answer().status == 200


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /v1/models HTTP/9.9\r\n\r\n",
        post(b"", JSON, "Content-Length: x", length=False),
        post(b"zz\r\n", JSON, "Transfer-Encoding: chunked", length=False),
        "GET /v1/mod\xe9ls HTTP/1.1\r\nHost: x\r\n\r\n".encode("latin-1"),
        b"GET /v1/models HTTP/1.1\r\nBad Header\x00: x\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_a_400_with_a_body(small: Running, data: bytes) -> None:
    with Wire(small) as wire:
        wire.send(data)
        answer = wire.answer()
        assert answer.status in {400, 404}
        assert "detail" in answer.json()


def test_an_upgrade_offer_does_not_lose_a_body_in_many_pieces(small: Running) -> None:
    """As Java's HttpClient sends it, head and body apart."""
    head, _, body = post(VALID, JSON, *UPGRADE).partition(b"\r\n\r\n")
    with Wire(small) as wire:
        for _ in range(3):
            for piece in (head[:40], head[40:] + b"\r\n\r\n", body[:50], body[50:]):
                wire.send(piece)
                time.sleep(0.02)
            assert wire.answer().status == 200


def test_an_oversize_upload_reads_its_answer(small: Running) -> None:
    with Wire(small) as wire:
        wire.send(post(b"x" * 20_000_000, JSON))
        answer = wire.answer()
        assert answer.status == 413
        wire.send(post(VALID, JSON))
        assert wire.answer().status == 200


def test_an_endless_chunked_upload_is_refused_while_it_runs(small: Running) -> None:
    chunk = b"ffff\r\n" + b"x" * 0xFFFF + b"\r\n"
    with Wire(small) as wire:
        wire.send(post(b"", JSON, "Transfer-Encoding: chunked", length=False) + 10 * chunk)
        assert wire.answer().status == 413
        wire.send(20 * chunk + b"0\r\n\r\n" + post(VALID, JSON))
        assert wire.answer().status == 200


def test_chunked_bodies(small: Running) -> None:
    half = len(VALID) // 2
    parts = (VALID[:half], VALID[half:])
    data = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    with Wire(small) as wire:
        wire.send(post(b"", JSON, "Transfer-Encoding: chunked", length=False))
        for byte in (data[i : i + 7] for i in range(0, len(data), 7)):
            wire.send(byte)
        assert wire.answer().status == 200


def test_expect_continue(small: Running) -> None:
    with Wire(small) as wire:
        wire.send(post(b"", JSON, "Expect: 100-continue", f"Content-Length: {len(VALID)}", length=False))
        assert wire.answer().status == 100
        wire.send(VALID)
        assert wire.answer().status == 200


def test_expect_continue_is_not_granted_to_oversize_bodies(small: Running) -> None:
    with Wire(small) as wire:
        wire.send(post(b"", JSON, "Expect: 100-continue", f"Content-Length: {LIMIT + 1}", length=False))
        assert wire.answer().status == 413


def test_pipelined_requests_are_answered_in_order(small: Running) -> None:
    bad = post(b"{", JSON)
    models = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    with Wire(small) as wire:
        wire.send(post(VALID, JSON) + bad + models + post(VALID, JSON))
        assert [wire.answer().status for _ in range(4)] == [200, 422, 200, 200]


def test_head(small: Running) -> None:
    with Wire(small) as wire:
        wire.send(b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\nHEAD /health HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = wire.answer(head=True)
        assert answer.status == 405
        assert answer.headers["allow"] == "GET"
        assert wire.answer(head=True).status == 200


def test_http_1_0_and_close(small: Running) -> None:
    for data in (
        b"GET /v1/models HTTP/1.0\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ):
        with Wire(small) as wire:
            wire.send(data)
            assert wire.answer().status == 200
            assert wire.file.read() == b""


def test_a_client_that_leaves_in_the_middle_of_its_body_disturbs_nobody(small: Running) -> None:
    with Wire(small) as wire:
        wire.send(post(VALID, JSON)[:-10])
    assert small.ask().status_code == 200


def test_idle_connections_outlive_the_clients_own_timeout(serve: Serve) -> None:
    with serve(keep_alive_s=1) as running, Wire(running) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.answer().status == 200
        started = time.monotonic()
        assert wire.file.read() == b""
        assert 0.5 < time.monotonic() - started < 8


def test_a_discarded_upload_that_stalls_is_let_go(serve: Serve) -> None:
    with serve(keep_alive_s=1, max_body_bytes=LIMIT) as running, Wire(running) as wire:
        wire.send(post(b"", JSON, "Content-Length: 9999999", length=False) + b"x")
        assert wire.answer().status == 413
        wire.send(b"x" * 10)
        assert wire.file.read() == b""


@pytest.mark.parametrize(
    "data", [b"POST /v1/systemone HTTP/1.1\r\nHos", post(b"", JSON, "Content-Length: 9", length=False)]
)
@pytest.mark.parametrize("drip", [b"", b"t"])
def test_a_request_that_does_not_arrive_is_answered_408(serve: Serve, data: bytes, drip: bytes) -> None:
    """A byte now and then does not keep it open."""
    with serve(receive_timeout_s=0.6) as running, Wire(running) as wire:
        wire.send(data)
        started = time.monotonic()
        while drip and time.monotonic() - started < 0.5:
            time.sleep(0.2)
            wire.send(drip)
        answer = wire.answer()
        assert 0.4 < time.monotonic() - started < 5
        assert answer.status == 408
        assert answer.json() == {"detail": "Request not received within 0.6 seconds."}
        assert wire.file.read() == b""


def test_a_discarded_upload_that_drips_is_let_go(serve: Serve) -> None:
    with serve(receive_timeout_s=0.6, max_body_bytes=LIMIT) as running, Wire(running) as wire:
        wire.send(post(b"", JSON, "Content-Length: 9999999", length=False))
        assert wire.answer().status == 413
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - started < 5:
                wire.send(b"x")
                time.sleep(0.05)
        assert time.monotonic() - started < 4


def test_a_connection_that_says_nothing_is_let_go(serve: Serve) -> None:
    with serve(keep_alive_s=1) as running, Wire(running) as wire:
        assert wire.file.read() == b""


ENDLESS = b"POST /v1/systemone HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"".join(b"x%d: y\r\n" % i for i in range(1000)) + b"\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 4000 + b"\r\n\r\n",
        b"GET /v1/models?" + b"y" * 4000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 2_000_000,
        b"GET /" + b"y" * 2_000_000,
        ENDLESS + b"\r\n1\r\n{\r\n0\r\nX: " + b"y" * 2_000_000,
        ENDLESS + b"\r\n1;" + b"y" * 2_000_000,
    ],
    ids=["many headers", "long header", "long path", "endless header", "endless path", "trailer", "chunk extension"],
)
def test_headers_are_bounded(serve: Serve, data: bytes) -> None:
    """The answer can be read although the client sends everything first, and the server is none the worse."""
    with serve(max_header_bytes=3000) as running:
        with Wire(running) as wire:
            wire.send(data)
            answer = wire.answer()
            assert answer.status == 431
            assert answer.json() == {"detail": "Request header too large. Must be at most 3000 bytes."}
            assert wire.file.read() == b""
        assert running.ask().status_code == 200


def test_small_chunks_and_large_bodies_are_no_headers(serve: Serve) -> None:
    with serve(max_header_bytes=1024) as running, Wire(running) as wire:
        wire.send(ENDLESS + b"Host: x\r\nContent-Type: application/json\r\n\r\n")
        wire.send(b"".join(b"1\r\n%c\r\n" % byte for byte in b" " * 3000 + VALID) + b"0\r\n\r\n")
        assert wire.answer().status == 200
        wire.send(post(b" " * 100_000 + VALID, JSON) * 3)
        assert [wire.answer().status for _ in range(3)] == [200] * 3


CHUNKED = post(b"", JSON, "Transfer-Encoding: chunked", length=False)


@pytest.mark.parametrize("bad", [b"nonsense\r\n\r\n", b"GET /" + b"y" * 4000, CHUNKED + b"zz\r\n"])
def test_what_follows_a_request_is_refused_after_its_answer(serve: Serve, bad: bytes) -> None:
    gate = threading.Event()
    with serve(FakeEngine(gate=gate), max_header_bytes=3000) as running, Wire(running) as wire:
        wire.send(post(VALID, JSON) + post(VALID, JSON))
        assert running.engine.entered.wait(10)
        wire.send(bad)
        time.sleep(0.2)
        gate.set()
        assert [wire.answer().status for _ in range(3)] == [200, 200, 431 if bad.startswith(b"GET") else 400]
        assert wire.file.read() == b""


@pytest.mark.parametrize("count", [1, 3])
def test_a_client_that_only_closes_its_sending_side_gets_its_answers(small: Running, count: int) -> None:
    """As `nc -N` does."""
    with Wire(small) as wire:
        wire.send(post(VALID, JSON) * count)
        wire.socket.shutdown(socket.SHUT_WR)
        assert [wire.answer().status for _ in range(count)] == [200] * count
        assert wire.file.read() == b""


def test_half_closed_and_waiting(serve: Serve) -> None:
    """After a while interim responses show whether anybody is still there."""
    gate = threading.Event()
    with serve(FakeEngine(gate=gate)) as running, Wire(running) as wire:
        wire.send(post(VALID, JSON))
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.answer().status == 100
        gate.set()
        while (answer := wire.answer()).status == 100:
            pass
        assert answer.status == 200
        assert wire.file.read() == b""


@pytest.mark.parametrize("data", [b"", b"POST /v1/sys", post(VALID, JSON)[:-10]])
def test_half_closed_without_a_whole_request(small: Running, data: bytes) -> None:
    with Wire(small) as wire:
        wire.send(data)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.file.read() == b""


def test_small_answers_leave_without_delay(small: Running) -> None:
    """Headers and body are two writes: with Nagle's algorithm each answer would wait 40 ms for an acknowledgement."""
    with Wire(small) as wire:
        wire.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert wire.answer().status == 200
        sockets = [c.transport.get_extra_info("socket") for c in small.server.server_state.connections]
        assert sockets
        assert all(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for s in sockets)
