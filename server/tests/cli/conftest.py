"""A System One server that answers every request alike, and the command line in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
ANSWERS = {
    "urgent": {"type": "noul", "noul": 0.75},
    "team": {
        "type": "choice",
        "choice": "billing",
        "confidence": 0.85,
        "probabilities": {"billing": 0.9, "technical": 0.06, "sales": 0.04},
    },
    "anger": {
        "type": "score",
        "score": 1.5,
        "confidence": 0.5,
        "legend": {"0": "calm", "1": "annoyed", "2": "furious"},
        "probabilities": {"0": 0.1, "1": 0.3, "2": 0.6},
    },
}
BODY = {"model": "jev-1.14.0", "answers": ANSWERS, "usage": {"input_tokens": 123, "output_tokens": 6}}


class FakeServer(ThreadingHTTPServer):
    """Keeps what it was sent. `status` and `hold` (an event that answers wait for) are for the test to set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.received: list[tuple[dict[str, str], Any]] = []
        self.arrived = threading.Event()
        self.hold: threading.Event | None = None
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: FakeServer

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(({k.lower(): v for k, v in self.headers.items()}, json.loads(raw)))
        self.server.arrived.set()
        if self.server.hold is not None:
            self.server.hold.wait(60)
            return
        error = {"detail": {"error_type": "api_usage_error", "message": "Unknown model: nix"}}
        body = json.dumps(BODY if self.server.status == 200 else error).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-openjev-fingerprint", "fake@0/none")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def fake_server() -> Iterator[FakeServer]:
    server = FakeServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    if server.hold is not None:
        server.hold.set()
    server.shutdown()
    thread.join()
    server.server_close()


def environment(**settings: str) -> dict[str, str]:
    """This process's environment without settings of ours, and the packages of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENJEV_", "TYPESAFE_"))}
    path = os.pathsep.join(str(ROOT / name) for name in ("server", "sdk", "compat_tests"))
    return kept | {"PYTHONPATH": path, "NO_PROXY": "127.0.0.1", "COLUMNS": "100"} | settings


def start(*arguments: str, **settings: str) -> subprocess.Popen[str]:
    """`openjev ARGUMENTS` in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "openjev_server.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**settings),
    )


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run() -> Run:
    """`openjev ARGUMENTS`, to its end."""

    def openjev(*arguments: str, stdin: str | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "openjev_server.cli", *arguments],
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            env=environment(**settings),
            timeout=240,
            check=False,
        )

    return openjev
