"""HTTP clients that cost little: plain sockets that stay open, in processes of their own.

A client sends prepared bytes and reads the answer by its Content-Length; nothing is parsed but the status. One client
does a round trip against a local server that answers at once in about 50 microseconds of its own time.
"""

from __future__ import annotations

import multiprocessing
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Connection", "Load", "Reply", "concurrently", "load", "percentile"]

CLIENTS_PER_PROCESS = 8
"""Threads that wait in `recv` most of the time."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    seconds: float
    body: bytes


class Connection:
    """One open connection, one request at a time."""

    def __init__(self, url: str, headers: dict[str, str] | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=300)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        extra = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self._head = (
            f"POST /v1/systemone HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n{extra}"
        ).encode()
        self._left = b""

    def post(self, body: bytes) -> Reply:
        """Raises OSError when the connection breaks."""
        message = b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)
        started = time.perf_counter()
        self._socket.sendall(message)
        head = self._until(b"\r\n\r\n")
        status = int(head[9:12])
        length = next(
            int(line.partition(b":")[2]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        answer = self._exactly(length)
        return Reply(status, time.perf_counter() - started, answer)

    def close(self) -> None:
        self._socket.close()

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._left:
            self._more()
        head, _, self._left = self._left.partition(mark)
        return head

    def _exactly(self, count: int) -> bytes:
        while len(self._left) < count:
            self._more()
        body, self._left = self._left[:count], self._left[count:]
        return body

    def _more(self) -> None:
        got = self._socket.recv(1 << 16)
        if not got:
            raise ConnectionError("the server closed the connection")
        self._left += got


def concurrently(connections: Sequence[Connection], bodies: Sequence[bytes]) -> tuple[float, list[Reply]]:
    """One body per connection, all at once: seconds until the last answer, and the answers in order."""
    started = time.perf_counter()
    if len(bodies) == 1:
        replies = [connections[0].post(bodies[0])]
    else:
        with ThreadPoolExecutor(len(bodies)) as pool:
            replies = list(pool.map(lambda pair: pair[0].post(pair[1]), zip(connections, bodies, strict=False)))
    return time.perf_counter() - started, replies


@dataclass(frozen=True, slots=True)
class Load:
    """What many clients saw during the measured time."""

    seconds: float
    latencies: tuple[float, ...]
    """Of the requests that ended in it, in seconds."""
    failures: tuple[str, ...]
    """Status or error of every other answer."""


def load(
    url: str,
    bodies: Callable[[int], Sequence[bytes]],
    *,
    clients: int,
    seconds: float,
    warm_up_s: float,
    headers: dict[str, str] | None = None,
) -> Load:
    """`clients` connections, each sending its `bodies(client)` over and over, for so many seconds after a warm-up.

    `bodies` runs in the child processes and must be picklable.
    """
    context = multiprocessing.get_context("spawn")
    groups = [list(range(clients))[first :: _processes(clients)] for first in range(_processes(clients))]
    pipes, children = [], []
    for group in groups:
        ours, theirs = context.Pipe()
        child = context.Process(target=_run_group, args=(theirs, url, bodies, group, headers), daemon=True)
        child.start()
        pipes.append(ours)
        children.append(child)
    try:
        for pipe in pipes:
            pipe.recv()  # connected, bodies made
        begin = time.time() + warm_up_s
        for pipe in pipes:
            pipe.send((begin, begin + seconds))
        results: list[Any] = [pipe.recv() for pipe in pipes]
    finally:
        for child in children:
            child.join(30)
            if child.is_alive():
                child.terminate()
    return Load(
        seconds,
        tuple(latency for latencies, _ in results for latency in latencies),
        tuple(failure for _, failures in results for failure in failures),
    )


def _processes(clients: int) -> int:
    return max(1, -(-clients // CLIENTS_PER_PROCESS))


def _run_group(
    pipe: Pipe,
    url: str,
    bodies: Callable[[int], Sequence[bytes]],
    group: Sequence[int],
    headers: dict[str, str] | None,
) -> None:
    prepared = {client: list(bodies(client)) for client in group}
    pipe.send("ready")
    begin, end = pipe.recv()
    latencies: list[float] = []
    failures: list[str] = []

    def client(number: int) -> None:
        connection = Connection(url, headers)
        at = 0
        while time.time() < end:
            body = prepared[number][at % len(prepared[number])]
            at += 1
            try:
                reply = connection.post(body)
            except OSError as error:
                failures.append(f"{type(error).__name__}: {error}")
                connection = Connection(url, headers)
                continue
            if reply.status != 200:
                failures.append(str(reply.status))
            elif begin <= time.time() <= end:
                latencies.append(reply.seconds)
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in group]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send((latencies, failures))


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics. Raises IndexError without values."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
