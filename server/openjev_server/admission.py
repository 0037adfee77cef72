"""A bounded queue in front of the one thread that owns the engine.

Idle: a request runs at once. Busy: what waits meanwhile is packed, oldest first, into the next call up to a token
budget. Nothing is ever reordered, and a request that fails does so alone.
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


class Overloaded(Exception):
    """The queue is full, or the server is stopping: try again later."""


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    request: EngineRequest
    future: Future[EngineResult] = field(default_factory=Future)
    submitted: float = field(default_factory=time.perf_counter)


class Admission:
    """Owns the engine's thread.

    Args:
        engine: called from that thread only, `warm_up` first.
        max_queued: requests that may wait, without those already in the engine.
        token_budget: tokens (rows of the first pass) packed into one call; a larger request runs alone.
    """

    def __init__(self, engine: Engine, *, max_queued: int, token_budget: int) -> None:
        self._engine = engine
        self._max_queued = max_queued
        self._token_budget = token_budget
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
        while batch := self._next_batch():
            self._run(batch)

    def _next_batch(self) -> list[_Job]:
        """Blocks until something waits; empty once the queue is closed and drained."""
        with self._changed:
            while True:
                batch = self._take()
                if batch or self._closing:
                    return batch
                self._changed.wait()

    def _take(self) -> list[_Job]:
        batch: list[_Job] = []
        tokens = 0
        while self._waiting:
            job = self._waiting[0]
            if batch and tokens + job.request.tokens > self._token_budget:
                break
            self._waiting.popleft()
            if job.future.set_running_or_notify_cancel():
                batch.append(job)
                tokens += job.request.tokens
        return batch

    def _run(self, batch: list[_Job]) -> None:
        started = time.perf_counter()
        try:
            outcomes = self._call(batch)
        except Exception as error:
            if len(batch) > 1:
                logger.exception("A batch of %d requests failed; each is tried alone", len(batch))
                for job in batch:
                    self._run([job])
                return
            logger.exception("A request failed in the engine")
            outcomes = [_as_engine_error(error)]
        elapsed_ms = 1000 * (time.perf_counter() - started)
        for job, outcome in zip(batch, outcomes, strict=True):
            _settle(job, _timed(outcome, queue_ms=1000 * (started - job.submitted), model_ms=elapsed_ms))

    def _call(self, batch: list[_Job]) -> list[EngineResult | EngineError]:
        outcomes = self._engine.run([job.request for job in batch])
        if len(outcomes) != len(batch):
            raise EngineError(f"the engine returned {len(outcomes)} results for {len(batch)} requests")
        return outcomes


def _as_engine_error(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    wrapped = EngineError(f"{type(error).__name__} in the engine")
    wrapped.__cause__ = error
    return wrapped


def _timed(outcome: EngineResult | EngineError, *, queue_ms: float, model_ms: float) -> EngineResult | EngineError:
    if isinstance(outcome, EngineError):
        return outcome
    return replace(outcome, queue_ms=queue_ms, model_ms=outcome.model_ms or model_ms)


def _settle(job: _Job, outcome: EngineResult | Exception) -> None:
    if job.future.done():
        return
    if isinstance(outcome, Exception):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)
