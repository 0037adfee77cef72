"""The process: it says where it listens, and it ends cleanly."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import httpx
import pytest
from app_support import BODY, REQUEST_ID

SERVER = Path(__file__).parents[2]
SCRIPT = """
import sys
from openjev_server import serving
from openjev_server.engine.fake import FakeEngine
from openjev_server.settings import Settings

serving.load_checkpoint = lambda *_: FakeEngine(delay_s=float(sys.argv[1]))
try:
    sys.exit(serving.serve(Settings()))
except serving.CannotServe as error:
    sys.exit(str(error))
"""


class Process:
    """A served process whose standard error is read line by line."""

    def __init__(self, delay_s: float = 0.5, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(delay_s)],
            env={"PYTHONPATH": str(SERVER), "OPENJEV_PORT": "0", **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.errors = self.process.stderr
        self.watchdog = threading.Timer(60, self.process.kill)
        self.watchdog.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.watchdog.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.errors.close()

    def url(self) -> str:
        for line in self.errors:
            if "serves on" in line:
                return line.split()[-1]
        raise AssertionError("the server ended before it listened")

    def ready_url(self) -> str:
        url = self.url()
        while "ready" not in self.errors.readline():
            pass
        return url

    def end(self) -> tuple[int, str]:
        return self.process.wait(30), self.errors.read()


@contextmanager
def asking(url: str, count: int) -> Iterator[list[HTTPConnection]]:
    """Connections whose requests the server has read."""
    with ExitStack() as stack:
        waiting = []
        for _ in range(count):
            connection = stack.enter_context(closing(HTTPConnection(httpx.URL(url).netloc.decode(), timeout=20)))
            connection.request("POST", "/v1/systemone", json.dumps(BODY), {"content-type": "application/json"})
            waiting.append(connection)
        # Connections are accepted in order: once these are answered, the server has read the requests before them.
        for _ in range(3):
            assert httpx.get(f"{url}/ready").status_code == 200
        yield waiting


def check_refused(answer: HTTPResponse) -> None:
    """A 503 that a client of the dialect understands."""
    assert answer.status == 503
    assert json.loads(answer.read())["detail"]["error_type"] == "stopping"
    assert REQUEST_ID.fullmatch(answer.headers["x-typesafe-request-id"])
    assert answer.headers["retry-after"] == "1"
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_without_a_word(number: signal.Signals) -> None:
    with Process() as served:
        with asking(served.ready_url(), 3) as waiting:
            served.process.send_signal(number)
            assert [connection.getresponse().status for connection in waiting] == [200] * 3
        assert served.end() == (0, "")


@pytest.mark.parametrize("twice", [False, True])
def test_what_cannot_be_answered_in_time_is_refused(twice: bool) -> None:
    """After the drain timeout, or at once when Ctrl-C is pressed again; the engine's pass is not waited for."""
    with Process(30, OPENJEV_DRAIN_TIMEOUT_S="20" if twice else "0.5") as served:
        with asking(served.ready_url(), 3) as waiting:
            started = time.monotonic()
            served.process.send_signal(signal.SIGINT)
            if twice:
                time.sleep(0.3)
                served.process.send_signal(signal.SIGINT)
            for connection in waiting:
                check_refused(connection.getresponse())
        assert served.end() == (0, "OpenJev stops without answering 3 requests\n")
        assert time.monotonic() - started < 10


@pytest.mark.parametrize("first", [b"", b"POST /v1/sys", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_an_idle_server_stops_at_once(first: bytes) -> None:
    with Process() as served:
        url = served.ready_url()
        with socket.create_connection(("127.0.0.1", httpx.URL(url).port or 0), timeout=20) as client:
            client.sendall(first)
            assert httpx.get(f"{url}/ready").status_code == 200
            started = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            assert served.end() == (0, "")
            assert time.monotonic() - started < 3


def test_half_a_body_does_not_keep_a_server_from_stopping() -> None:
    with Process() as served:
        url = served.ready_url()
        with closing(HTTPConnection(httpx.URL(url).netloc.decode(), timeout=20)) as client:
            client.putrequest("POST", "/v1/systemone")
            client.putheader("content-length", "100")
            client.endheaders(b'{"a"')
            assert httpx.get(f"{url}/ready").status_code == 200
            started = time.monotonic()
            served.process.send_signal(signal.SIGTERM)
            check_refused(client.getresponse())
            assert served.end() == (0, "")
            assert time.monotonic() - started < 5


def test_a_body_that_is_on_its_way_is_waited_for() -> None:
    body = json.dumps(BODY).encode()
    with Process() as served:
        url = served.ready_url()
        with closing(HTTPConnection(httpx.URL(url).netloc.decode(), timeout=20)) as client:
            client.putrequest("POST", "/v1/systemone")
            client.putheader("content-type", "application/json")
            client.putheader("content-length", str(len(body)))
            client.endheaders(body[:9])
            assert httpx.get(f"{url}/ready").status_code == 200
            served.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            client.send(body[9:])
            assert client.getresponse().status == 200
        assert served.end() == (0, "")


def test_an_open_server_on_a_network_address_does_not_start() -> None:
    with Process(OPENJEV_HOST="0.0.0.0") as served:
        status, said = served.end()
        assert status == 1
        assert said.startswith("Refusing to listen on 0.0.0.0 without API keys")
        assert said.count("\n") == 1
