"""A server in a process of its own on a free loopback port: on a checkpoint directory, or on random weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

__all__ = ["RunningServer", "ServerFailed", "running_server"]

ROOT = Path(__file__).resolve().parents[1]
STOP_TIMEOUT_S = 40.0


class ServerFailed(RuntimeError):
    """The server did not become ready; the message ends with what it printed."""


@dataclass(frozen=True, slots=True)
class RunningServer:
    url: str
    pid: int
    ready_s: float
    """From the start of the process until `/ready`."""
    log: Path


@contextmanager
def running_server(
    *,
    raw: Mapping[str, Any] | None = None,
    model: str | None = None,
    settings: Mapping[str, str] | None = None,
    command: list[str] | None = None,
    timeout_s: float = 420.0,
) -> Iterator[RunningServer]:
    """Starts it, waits until it is ready, and stops it in the end.

    Args:
        raw: a configuration: random weights of that shape, and the benchmarks' own tokenizer.
        model: or a checkpoint directory (or `nano`) for `openjev serve`.
        settings: OPENJEV_* variables; the caller's own are left out.
        command: or another command altogether; it prints its address as the product does.

    Raises ServerFailed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENJEV_")}
    paths = [str(ROOT), str(ROOT / "server"), str(ROOT / "sdk"), environment.get("PYTHONPATH", "")]
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": "1"}
    environment |= {"OPENJEV_PORT": "0", **(settings or {})}
    with tempfile.TemporaryDirectory(prefix="openjev-bench-") as scratch:
        directory = Path(scratch) / "random"
        if command is None and raw is not None:
            _write_model(directory, raw)
            command = [sys.executable, "-m", "benchmarks.random_server", str(directory)]
        elif command is None:
            command = [sys.executable, "-m", "openjev_server.cli", "serve", "--model", model or "nano"]
        log = Path(scratch) / "log"
        with log.open("wb") as output:
            started = time.perf_counter()
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
        try:
            url = _wait_until_ready(process, log, started + timeout_s)
            yield RunningServer(url, process.pid, time.perf_counter() - started, log)
        finally:
            _stop(process)


def _write_model(directory: Path, raw: Mapping[str, Any]) -> None:
    from benchmarks.released import write_stub
    from benchmarks.text import build_tokenizer

    directory.mkdir()
    write_stub(directory, raw)
    build_tokenizer().save(str(directory / "tokenizer.json"))


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path, deadline: float) -> str:
    url = ""
    while time.perf_counter() < deadline:
        if process.poll() is not None:
            raise ServerFailed(f"the server ended with exit status {process.returncode}:\n{_tail(log)}")
        if not url:
            lines = log.read_text(errors="replace").splitlines()
            url = next((line.split()[-1] for line in lines if "serves on" in line), "")
        elif _is_ready(url):
            return url
        time.sleep(0.05)
    raise ServerFailed(f"the server was not ready in time:\n{_tail(log)}")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


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
