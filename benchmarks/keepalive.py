"""How long a keep-alive `GET /v1/models` takes: `python benchmarks/keepalive.py [URL]`.

Without a URL a server with a fake engine is started in a process of its own, so that only HTTP is measured.
Prints median and 95th percentile in milliseconds, and fails when the median is not under 10 ms.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

__all__ = ["measure"]

ROUNDS = 500
LIMIT_MS = 10.0
SERVER = """
from openjev_server import serving
from openjev_server.engine.fake import FakeEngine
from openjev_server.settings import Settings

serving.load_checkpoint = lambda *_: FakeEngine()
serving.serve(Settings())
"""


def measure(url: str) -> list[float]:
    """Sorted durations in milliseconds of `ROUNDS` requests on one connection, after ten to warm up."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    with contextlib.closing(connection):
        return sorted([_request_ms(connection) for _ in range(ROUNDS + 10)][10:])


def _request_ms(connection: http.client.HTTPConnection) -> float:
    started = time.perf_counter()
    connection.request("GET", "/v1/models")
    response = connection.getresponse()
    response.read()
    if response.status != http.HTTPStatus.OK:
        raise SystemExit(f"GET /v1/models answered {response.status}")
    return 1000 * (time.perf_counter() - started)


@contextlib.contextmanager
def _server() -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER], env={**os.environ, "OPENJEV_PORT": "0"}, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        yield next(line.split()[-1] for line in process.stderr if "serves on" in line)
    finally:
        process.terminate()
        process.wait()


def main() -> int:
    """The command."""
    with contextlib.nullcontext(sys.argv[1]) if len(sys.argv) > 1 else _server() as url:
        durations = measure(url)
    median = statistics.median(durations)
    print(
        f"GET /v1/models, keep-alive, {ROUNDS} requests: median {median:.2f} ms, p95 {durations[-ROUNDS // 20]:.2f} ms"
    )
    return 0 if median < LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
