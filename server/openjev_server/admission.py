"""A bounded queue in front of the one thread that owns the engine.

Idle: a request runs at once. Busy: the engine is handed, oldest first, what fills its next few passes, and orders
that itself, so that a small request need not wait for all of a large one. A request that fails does so alone.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from openjev_server.engine.protocol import Engine, EngineError, EngineRequest, EngineResult

__all__ = ["Admission", "Overloaded"]

logger = logging.getLogger(__name__)


PASSES_AHEAD = 4


class Overloaded(Exception):
    """The queue is full, or the server is stopping: try again later."""


@dataclass(slots=True, eq=False)
class _Job:
    request: EngineRequest
    future: Future[EngineResult] = field(default_factory=Future)
    submitted: float = field(default_factory=time.perf_counter)
    started: float = 0.0


class Admission:
    """Owns the engine's thread.

    Args:
        engine: called from that thread only, `warm_up` first.
        max_queued: requests that may wait, without those already in the engine.
        token_budget: tokens (rows of the first step) of one of the engine's passes.
        passes_ahead: how many passes' worth of requests the engine is handed; a request larger than a pass counts as
            one, so that a few large ones do not keep the small ones out.
    """

    def __init__(self, engine: Engine, *, max_queued: int, token_budget: int, passes_ahead: int = PASSES_AHEAD) -> None:
        self._engine = engine
        self._max_queued = max_queued
        self._token_budget = token_budget
        self._room = token_budget * passes_ahead
        self._running: dict[int, _Job] = {}
        self._waiting: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._warm = threading.Event()
        # A daemon: a pass that outlives the drain timeout must not keep the process from ending.
        self._thread = threading.Thread(target=self._work, name="openjev-engine", daemon=True)

    @property
    def ready(self) -> bool:
        """Whether the engine has warmed up and requests are accepted."""
        return self._warm.is_set() and not self._closing

    @property
    def queued(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def start(self) -> None:
        """Starts the engine's thread, which warms the engine up before its first request."""
        if self._thread.ident is None:
            self._thread.start()

    async def submit(self, request: EngineRequest) -> EngineResult:
        """Waits for the engine's answer; cancelling the wait takes a queued request out of the queue.

        Starts the thread if nothing has, so that an app without a lifespan (in process, in tests) answers as well.

        Raises:
            Overloaded: the queue is full or closing.
            EngineError: this request could not be evaluated.
        """
        self.start()
        job = _Job(request)
        with self._changed:
            if self._closing or len(self._waiting) >= self._max_queued:
                raise Overloaded("server is stopping" if self._closing else "too many requests are waiting")
            self._waiting.append(job)
            self._changed.notify()
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            with self._changed:
                if job in self._waiting:
                    self._waiting.remove(job)
            raise

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests, finishes the accepted ones, then closes the engine.

        Returns False when the timeout came first: what still waited then fails as overloaded.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, timeout_s)
        with self._changed:
            abandoned = list(self._waiting)
            self._waiting.clear()
        for job in abandoned:
            _settle(job, Overloaded("server is stopping"))
        if self._thread.is_alive():
            return False
        self._engine.close()
        return not abandoned

    def _work(self) -> None:
        try:
            self._engine.warm_up()
        except Exception:
            logger.exception("The engine's warm-up failed; the server stays unready")
        else:
            self._warm.set()
        while self._take_in():
            self._advance()

    def _take_in(self) -> bool:
        """Hands the engine what fits; blocks while there is nothing at all to do. False: closed and drained."""
        with self._changed:
            while not self._waiting and not self._running:
                if self._closing:
                    return False
                self._changed.wait()
            jobs = self._next_jobs()
        for ticket in [ticket for ticket, job in self._running.items() if job.future.cancelled()]:
            del self._running[ticket]
            self._engine.abandon(ticket)
        for job in jobs:
            job.started = time.perf_counter()
            self._running[self._engine.begin(job.request)] = job
        return True

    def _next_jobs(self) -> list[_Job]:
        jobs: list[_Job] = []
        tokens = sum(self._counted(job) for job in self._running.values())
        while self._waiting:
            job = self._waiting[0]
            if (jobs or self._running) and tokens + self._counted(job) > self._room:
                break
            self._waiting.popleft()
            if not job.future.cancelled():
                jobs.append(job)
                tokens += self._counted(job)
        return jobs

    def _counted(self, job: _Job) -> int:
        return min(job.request.tokens, self._token_budget)

    def _advance(self) -> None:
        try:
            outcomes = self._engine.advance()
        except Exception as error:
            self._retry_alone(error)
            return
        for ticket, outcome in outcomes.items():
            job = self._running.pop(ticket, None)
            if job is not None:
                _settle(job, _timed(outcome, job))

    def _retry_alone(self, error: Exception) -> None:
        """A pass that raised says nothing about whose fault it was."""
        jobs = list(self._running.items())
        self._running.clear()
        for ticket, _ in jobs:
            self._engine.abandon(ticket)
        if len(jobs) == 1:
            logger.error("A request failed in the engine", exc_info=error)
            _settle(jobs[0][1], _as_engine_error(error))
            return
        logger.error("A pass over %d requests failed; each is tried alone", len(jobs), exc_info=error)
        for _, job in jobs:
            try:
                (outcome,) = self._engine.run([job.request])
            except Exception as again:
                logger.exception("A request failed in the engine")
                outcome = _as_engine_error(again)
            _settle(job, _timed(outcome, job))


def _as_engine_error(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    wrapped = EngineError(f"{type(error).__name__} in the engine")
    wrapped.__cause__ = error
    return wrapped


def _timed(outcome: EngineResult | EngineError, job: _Job) -> EngineResult | EngineError:
    if isinstance(outcome, EngineError):
        return outcome
    model_ms = outcome.model_ms or 1000 * (time.perf_counter() - job.started)
    return replace(outcome, queue_ms=1000 * (job.started - job.submitted), model_ms=model_ms)


def _settle(job: _Job, outcome: EngineResult | Exception) -> None:
    if not job.future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Exception):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)
