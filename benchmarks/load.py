"""HTTP clients that cost little: plain sockets that stay open, in processes of their own.

A client sends ready bytes and reads the answer by its Content-Length; nothing is parsed but the status.
`Load.client_us` says what a request costs the client in processor time.
"""

from __future__ import annotations

import multiprocessing
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from urllib.parse import urlsplit

__all__ = ["Connection", "Load", "Refused", "Reply", "concurrently", "load", "percentile"]

CLIENTS_PER_PROCESS = 8
"""Threads, which wait in `recv` most of the time."""
_MODEL_MS = re.compile(rb"model;dur=([\d.]+)")


class Refused(RuntimeError):
    """A request was not answered with 200; the message says with what."""


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    seconds: float
    head: bytes
    body: bytes

    @property
    def model_s(self) -> float | None:
        """Seconds in the engine, as the server's `Server-Timing` says."""
        found = _MODEL_MS.search(self.head)
        return float(found[1]) / 1000 if found else None

    def checked(self) -> Reply:
        """Itself. Raises Refused unless the status is 200."""
        if self.status != 200:
            raise Refused(f"{self.status} {self.body[:200]!r}")
        return self


class Connection:
    """One open connection, one request at a time."""

    def __init__(self, url: str, **headers: str) -> None:
        """`headers` by name, `_` for `-`."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._socket = socket.create_connection((parts.hostname, parts.port), timeout=300)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
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
        lines = head.lower().split(b"\r\n")
        length = next(int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
        answer = self._exactly(length)
        return Reply(int(head[9:12]), time.perf_counter() - started, head, answer)

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
    """Of the answers that came in it, in seconds."""
    failures: tuple[str, ...]
    """Status or error of every other answer, the warm-up's too."""
    client_us: float
    """Processor time of the clients per request, in microseconds."""


def load(
    url: str,
    bodies: Callable[[int], Iterator[bytes]],
    *,
    clients: int,
    seconds: float,
    warm_up_s: float,
    **headers: str,
) -> Load:
    """`clients` connections, each sending the next of its `bodies(client)` as soon as it has an answer.

    `bodies` is called in the child processes: it must be picklable, and never end.
    """
    context = multiprocessing.get_context("spawn")
    count = max(1, -(-clients // CLIENTS_PER_PROCESS))
    pipes, children = [], []
    for first in range(count):
        ours, theirs = context.Pipe()
        group = range(first, clients, count)
        child = context.Process(target=_run_group, args=(theirs, url, bodies, group, headers), daemon=True)
        child.start()
        pipes.append(ours)
        children.append(child)
    try:
        for pipe in pipes:
            pipe.recv()
        begin = time.time() + warm_up_s
        for pipe in pipes:
            pipe.send((begin, begin + seconds))
        groups: list[tuple[list[float], list[str], float, int]] = [pipe.recv() for pipe in pipes]
    finally:
        for child in children:
            child.join(30)
            if child.is_alive():
                child.terminate()
    return Load(
        seconds,
        tuple(latency for latencies, _, _, _ in groups for latency in latencies),
        tuple(failure for _, failures, _, _ in groups for failure in failures),
        round(1e6 * sum(group[2] for group in groups) / max(1, sum(group[3] for group in groups)), 1),
    )


def _run_group(
    pipe: Pipe, url: str, bodies: Callable[[int], Iterator[bytes]], group: Sequence[int], headers: dict[str, str]
) -> None:
    latencies: list[float] = []
    failures: list[str] = []
    sent: list[int] = []

    def client(number: int, begin: float, end: float) -> None:
        connection = Connection(url, **headers)
        count = 0
        for body in bodies(number):
            if time.time() >= end:
                break
            count += 1
            try:
                reply = connection.post(body)
            except OSError as error:
                failures.append(f"{type(error).__name__}: {error}")
                connection = Connection(url, **headers)
                continue
            if reply.status != 200:
                failures.append(f"{reply.status} {reply.body[:200]!r}")
            elif begin <= time.time() <= end:
                latencies.append(reply.seconds)
        connection.close()
        sent.append(count)

    next(bodies(0))
    pipe.send("ready")
    times = pipe.recv()
    used = time.process_time()
    threads = [threading.Thread(target=client, args=(number, *times)) for number in group]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pipe.send((latencies, failures, time.process_time() - used, sum(sent)))


def percentile(values: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics. Raises IndexError without values."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
