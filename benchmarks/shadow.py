"""What `openjev shadow` adds to an upstream's latency: `python benchmarks/shadow.py [--json FILE]`.

A stub upstream and the proxy run in processes of their own; one keep-alive client asks both in turn, in blocks whose
order alternates. Our engine is a stub that takes 50 ms, asked for a tenth of the requests, as by default.
Fails when the added median is over 3 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["measure"]

BLOCKS, BLOCK = 40, 25
LIMIT_MS = 3.0
BODY = json.dumps(
    {
        "state": "I was charged twice for the same order and need the extra charge refunded today. " * 12,
        "model": "jev-latest",
        "questions": {f"q{number}": {"type": "noul", "instructions": "Is it about money?"} for number in range(5)},
    }
).encode()
STUB = """
import asyncio, json, sys
import uvicorn
answers = {f"q{number}": {"type": "noul", "noul": 0.5} for number in range(5)}
body = json.dumps({"model": "stub", "answers": answers, "usage": {"input_tokens": 300, "output_tokens": 100}}).encode()
async def app(scope, receive, send):
    while (await receive())["more_body"]:
        pass
    await asyncio.sleep(float(sys.argv[2]))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", lifespan="off")
"""


def measure(direct: str, proxied: str) -> tuple[list[float], list[float]]:
    """Milliseconds of each request to the upstream and through the proxy, after a block to warm up."""
    with _connection(direct) as one, _connection(proxied) as other:
        for connection in (one, other):
            _block(connection)
        straight: list[float] = []
        through: list[float] = []
        for number in range(BLOCKS):
            pairs = [(one, straight), (other, through)]
            for connection, durations in pairs if number % 2 else pairs[::-1]:
                durations.extend(_block(connection))
    return straight, through


def _block(connection: http.client.HTTPConnection) -> list[float]:
    durations = []
    for _ in range(BLOCK):
        started = time.perf_counter()
        connection.request("POST", "/v1/systemone", BODY, {"content-type": "application/json"})
        response = connection.getresponse()
        response.read()
        if response.status != http.HTTPStatus.OK:
            raise SystemExit(f"answered {response.status}")
        durations.append(1000 * (time.perf_counter() - started))
    return durations


@contextlib.contextmanager
def _connection(address: str) -> Iterator[http.client.HTTPConnection]:
    with contextlib.closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        yield connection


@contextlib.contextmanager
def _process(port: int, *arguments: str) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, *arguments], stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{arguments[:2]} did not start")
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _percentile(durations: list[float], share: float) -> float:
    return sorted(durations)[round(share * (len(durations) - 1))]


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Latency that the shadow proxy adds.")
    parser.add_argument("--json", type=Path, help="write the figures here")
    file: Path | None = parser.parse_args().json
    ports = [_free_port() for _ in range(3)]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryDirectory())
        upstream = stack.enter_context(_process(ports[0], "-c", STUB, str(ports[0]), "0"))
        engine = stack.enter_context(_process(ports[1], "-c", STUB, str(ports[1]), "0.05"))
        command = ["-m", "openjev_compat.cli", "shadow", "--upstream", f"http://{upstream}", "--out", out]
        options = ["--engine", f"http://{engine}", "--port", str(ports[2])]
        proxy = stack.enter_context(_process(ports[2], *command, *options))
        straight, through = measure(upstream, proxy)
    figures = {
        "requests": len(through),
        "sample": 0.1,
        "upstream_p50_ms": round(statistics.median(straight), 3),
        "proxied_p50_ms": round(statistics.median(through), 3),
        "added_p50_ms": round(statistics.median(through) - statistics.median(straight), 3),
        "added_p95_ms": round(_percentile(through, 0.95) - _percentile(straight, 0.95), 3),
    }
    print(json.dumps(figures, indent=1))
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0 if figures["added_p50_ms"] <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
