"""The requests of one engine: what waits, what it has, and in which order it gets them. No processes here.

A request that was with an engine when it died may have killed it. It is tried once more, with nothing else in that
engine: if the engine dies again, it was this request, and no other has to suffer for it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from openjev_server.engine.protocol import EngineRequest, EngineResult

__all__ = ["Job", "Seat"]


@dataclass(slots=True, eq=False)
class Job:
    """A request from its submission to its answer."""

    request: EngineRequest
    key: bytes
    """Of its state, for routing."""
    future: asyncio.Future[EngineResult]
    deaths: int = 0
    """How many engines died while they had it."""
    submitted: float = field(default_factory=time.perf_counter)
    sent: float = 0.0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.request.tokens


class Seat:
    """Where one engine's requests are, whichever process sits there now.

    Args:
        window: requests that the engine has at a time; it packs them, so it should have more than one pass takes.
    """

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        self._window = window
        self._fresh: deque[Job] = deque()
        self._suspects: deque[Job] = deque()
        self._with_engine: dict[int, Job] = {}
        self._numbers = count(1)
        self.tokens = 0
        """Of all its requests, waiting or with the engine."""

    @property
    def waiting(self) -> int:
        return len(self._fresh) + len(self._suspects)

    def add(self, job: Job) -> None:
        (self._suspects if job.deaths else self._fresh).append(job)
        self.tokens += job.tokens

    def next(self) -> Iterator[tuple[int, Job]]:
        """Yields what the engine should get now, each with the number under which it will answer."""
        while (job := self._take()) is not None:
            number = next(self._numbers)
            self._with_engine[number] = job
            job.sent = time.perf_counter()
            yield number, job

    def answered(self, number: int) -> Job | None:
        """The request that was answered; None if there is none of that number."""
        job = self._with_engine.pop(number, None)
        if job is not None:
            self.tokens -= job.tokens
        return job

    def withdraw(self, job: Job) -> int | None:
        """Takes a waiting request out. The number of a request that the engine has already; it stays until answered."""
        for queue in (self._fresh, self._suspects):
            if job in queue:
                queue.remove(job)
                self.tokens -= job.tokens
                return None
        return next((number for number, other in self._with_engine.items() if other is job), None)

    def take_waiting(self) -> list[Job]:
        """Takes out what the engine does not have yet."""
        waiting = [*self._suspects, *self._fresh]
        self._suspects.clear()
        self._fresh.clear()
        self.tokens -= sum(job.tokens for job in waiting)
        return waiting

    def take_unanswered(self) -> list[Job]:
        """Takes out what the engine had."""
        unanswered = list(self._with_engine.values())
        self._with_engine.clear()
        self.tokens -= sum(job.tokens for job in unanswered)
        return unanswered

    def _take(self) -> Job | None:
        if self._suspects:
            return None if self._with_engine else self._suspects.popleft()
        alone = any(job.deaths for job in self._with_engine.values())
        if self._fresh and not alone and len(self._with_engine) < self._window:
            return self._fresh.popleft()
        return None
