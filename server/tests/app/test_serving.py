"""The process: it says where it listens, and it ends cleanly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from app_support import BODY

SERVER = Path(__file__).parents[2]
SCRIPT = """
import sys
from openjev_server import serving
from openjev_server.engine.fake import FakeEngine
from openjev_server.settings import Settings

serving.load_checkpoint = lambda *_: FakeEngine(delay_s=0.5)
try:
    sys.exit(serving.serve(Settings()))
except serving.CannotServe as error:
    sys.exit(str(error))
"""


class Process:
    """A served process whose standard error is read line by line."""

    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT],
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

    def end(self) -> tuple[int, str]:
        return self.process.wait(30), self.errors.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_ends_without_a_word(number: signal.Signals) -> None:
    with Process() as served, ExitStack() as stack:
        url = served.url()
        while "ready" not in served.errors.readline():
            pass
        waiting = []
        for _ in range(3):
            connection = stack.enter_context(closing(HTTPConnection(httpx.URL(url).netloc.decode(), timeout=20)))
            connection.request("POST", "/v1/systemone", json.dumps(BODY), {"content-type": "application/json"})
            waiting.append(connection)
        # Connections are accepted in order: once these are answered, the server has read the requests before them.
        for _ in range(3):
            assert httpx.get(f"{url}/ready").status_code == 200
        served.process.send_signal(number)
        assert [connection.getresponse().status for connection in waiting] == [200] * 3
        assert served.end() == (0, "")


def test_an_open_server_on_a_network_address_does_not_start() -> None:
    with Process(OPENJEV_HOST="0.0.0.0") as served:
        status, said = served.end()
        assert status == 1
        assert said.startswith("Refusing to listen on 0.0.0.0 without API keys")
        assert said.count("\n") == 1
