"""A server of ours in a process of its own, for the tests and the demo."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

__all__ = ["LiveServer", "ServerFailed", "free_port", "live_server"]

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 20.0


class ServerFailed(Exception):
    """The server did not start; the message ends with what it printed."""


@dataclass(frozen=True)
class LiveServer:
    url: str
    pid: int
    log: Path


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def live_server(log: Path, settings: Mapping[str, str] | None = None) -> Iterator[LiveServer]:
    """`openjev serve` on the embedded checkpoint and a free loopback port, ready to answer.

    `settings` are environment variables; OPENJEV_* of the caller's own environment are left out.
    Raises ServerFailed when the process ends or is not ready within START_TIMEOUT_S.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENJEV_")}
    environment.update(settings or {})
    command = [sys.executable, "-m", "openjev_server.cli", "serve", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    try:
        _wait_until_ready(process, url, log)
        yield LiveServer(url, process.pid, log)
    finally:
        _stop(process)


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise ServerFailed(f"the server ended with exit status {process.returncode}:\n{_tail(log)}")
        try:
            if httpx.get(f"{url}/ready", timeout=5, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise ServerFailed(f"the server was not ready after {START_TIMEOUT_S:.0f} s:\n{_tail(log)}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
