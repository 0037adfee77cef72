"""The queue in front of the engine: packing, order, bounds, cancellation, failures, draining."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from openjev_server.admission import Admission, Overloaded
from openjev_server.engine.fake import FakeEngine
from openjev_server.engine.protocol import (
    CanvasBlock,
    EngineError,
    EngineRequest,
    EngineResult,
    Int32,
    NonFiniteLogits,
)


def ids(*values: int) -> Int32:
    return np.array(values, np.int32)


def request_of(name: int, tokens: int = 10) -> EngineRequest:
    """A request of so many tokens, recognisable by its first one."""
    canvas = CanvasBlock(ids(), np.array([[1, 2]], np.int32), ids(1), ids(5, 6), ids(0, 2))
    return EngineRequest(np.full(tokens - 2, name, np.int32), (canvas,), steps=1)


def names(batch: Sequence[EngineRequest]) -> list[int]:
    return [int(request.state[0]) for request in batch]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


class Busy:
    """An engine held in its first call, so that what follows has to wait."""

    def __init__(self, *, max_queued: int = 100, token_budget: int = 30, **fake: Any) -> None:
        self.gate = threading.Event()
        self.engine = FakeEngine(gate=self.gate, **fake)
        self.admission = Admission(self.engine, max_queued=max_queued, token_budget=token_budget, passes_ahead=1)
        self.first: asyncio.Task[EngineResult]

    async def __aenter__(self) -> Busy:
        self.first = self.submit(0)
        await until(self.engine.entered.is_set)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        await self.admission.drain(5)

    def submit(self, name: int, tokens: int = 10) -> asyncio.Task[EngineResult]:
        return asyncio.ensure_future(self.admission.submit(request_of(name, tokens)))

    async def queue(self, *requests: int) -> list[asyncio.Task[EngineResult]]:
        tasks = [self.submit(name) for name in requests]
        await until(lambda: self.admission.queued == len(requests))
        return tasks

    def batches(self) -> list[list[int]]:
        return [names(batch) for batch in self.engine.batches]


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def test_an_idle_engine_runs_a_request_at_once() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        admission = Admission(engine, max_queued=1, token_budget=1)
        for name in (1, 2, 3):
            await admission.submit(request_of(name))
        assert [names(batch) for batch in engine.batches] == [[1], [2], [3]]
        assert await admission.drain(5)
        assert engine.closed

    run(scenario)


def test_what_waits_is_packed_in_order_up_to_the_budget() -> None:
    async def scenario() -> None:
        async with Busy(token_budget=30) as busy:
            tasks = await busy.queue(1, 2, 3, 4, 5)
            busy.gate.set()
            await asyncio.gather(busy.first, *tasks)
            assert busy.batches() == [[0], [1, 2, 3], [4, 5]]

    run(scenario)


def test_a_request_over_the_budget_runs_alone_and_is_not_overtaken() -> None:
    async def scenario() -> None:
        async with Busy(token_budget=30) as busy:
            tasks = [busy.submit(1), busy.submit(2, tokens=99), busy.submit(3)]
            await until(lambda: busy.admission.queued == 3)
            busy.gate.set()
            await asyncio.gather(*tasks)
            assert busy.batches() == [[0], [1], [2], [3]]

    run(scenario)


def test_a_cancelled_waiter_is_skipped_and_frees_its_place() -> None:
    async def scenario() -> None:
        async with Busy(max_queued=2) as busy:
            gone, stays = await busy.queue(1, 2)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            assert busy.admission.queued == 1
            third = busy.submit(3)
            await until(lambda: busy.admission.queued == 2)
            busy.gate.set()
            await asyncio.gather(stays, third)
            assert busy.batches() == [[0], [2, 3]]

    run(scenario)


def test_cancelling_a_running_request_leaves_the_engine_working() -> None:
    async def scenario() -> None:
        async with Busy() as busy:
            (waiting,) = await busy.queue(1)
            busy.first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await busy.first
            busy.gate.set()
            await waiting
            assert busy.batches() == [[0], [1]]

    run(scenario)


def test_the_queue_is_bounded() -> None:
    async def scenario() -> None:
        async with Busy(max_queued=2) as busy:
            tasks = await busy.queue(1, 2)
            with pytest.raises(Overloaded):
                await busy.submit(3)
            busy.gate.set()
            await asyncio.gather(*tasks)

    run(scenario)


def test_a_reported_failure_concerns_its_request_only() -> None:
    def failure(request: EngineRequest) -> EngineError | None:
        return NonFiniteLogits("noise") if names([request]) == [2] else None

    async def scenario() -> None:
        async with Busy(failure=failure) as busy:
            tasks = await busy.queue(1, 2, 3)
            busy.gate.set()
            one, two, three = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(one, EngineResult)
            assert isinstance(two, NonFiniteLogits)
            assert isinstance(three, EngineResult)
            assert busy.batches() == [[0], [1, 2, 3]]

    run(scenario)


def test_a_batch_that_raises_is_retried_one_by_one() -> None:
    def failure(request: EngineRequest) -> EngineError | None:
        if names([request]) == [2]:
            raise MemoryError("too much")
        return None

    async def scenario() -> None:
        async with Busy(failure=failure) as busy:
            tasks = await busy.queue(1, 2, 3)
            busy.gate.set()
            one, two, three = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(one, EngineResult)
            assert isinstance(two, EngineError)
            assert isinstance(two.__cause__, MemoryError)
            assert isinstance(three, EngineResult)
            assert busy.batches() == [[0], [1, 2, 3], [1], [2], [3]]

    run(scenario)


def test_a_large_request_leaves_room_for_small_ones() -> None:
    """It counts as one pass however large it is; the engine orders what it was handed."""

    async def scenario() -> None:
        engine = FakeEngine(gate=(gate := threading.Event()))
        admission = Admission(engine, max_queued=100, token_budget=30, passes_ahead=3)
        first = asyncio.ensure_future(admission.submit(request_of(0)))
        await until(engine.entered.is_set)
        tasks = [
            asyncio.ensure_future(admission.submit(request_of(n, size))) for n, size in ((1, 999), (2, 999), (3, 30))
        ]
        await until(lambda: admission.queued == 3)
        gate.set()
        await asyncio.gather(first, *tasks)
        assert [names(batch) for batch in engine.batches] == [[0], [1, 2, 3]]
        await admission.drain(5)

    run(scenario)


def test_a_request_that_nobody_waits_for_is_abandoned_between_passes() -> None:
    class Endless(FakeEngine):
        """Finishes nothing that was not abandoned meanwhile."""

        abandoned: ClassVar[list[int]] = []

        def advance(self) -> dict[int, EngineResult | EngineError]:
            time.sleep(0.001)
            return {}

        def abandon(self, ticket: int) -> None:
            self.abandoned.append(ticket)

    async def scenario() -> None:
        engine = Endless()
        admission = Admission(engine, max_queued=1, token_budget=1)
        gone = asyncio.ensure_future(admission.submit(request_of(1)))
        await until(lambda: bool(admission._running))
        gone.cancel()
        await until(lambda: engine.abandoned == [0])
        assert await admission.drain(5)

    run(scenario)


def test_draining_finishes_what_was_accepted_and_refuses_the_rest() -> None:
    async def scenario() -> None:
        async with Busy() as busy:
            tasks = await busy.queue(1, 2)
            draining = asyncio.ensure_future(busy.admission.drain(5))
            await until(lambda: not busy.admission.ready)
            with pytest.raises(Overloaded):
                await busy.submit(3)
            busy.gate.set()
            assert await draining
            await asyncio.gather(busy.first, *tasks)
            assert busy.engine.closed

    run(scenario)


def test_a_drain_that_times_out_fails_what_still_waits() -> None:
    async def scenario() -> None:
        async with Busy() as busy:
            (waiting,) = await busy.queue(1)
            assert not await busy.admission.drain(0.01)
            with pytest.raises(Overloaded):
                await waiting
            assert not busy.engine.closed
            busy.gate.set()
            await busy.first

    run(scenario)


def test_readiness_follows_the_warm_up() -> None:
    class SlowToWarm(FakeEngine):
        warm = threading.Event()

        def warm_up(self) -> None:
            self.warm.wait()

    async def scenario() -> None:
        engine = SlowToWarm()
        admission = Admission(engine, max_queued=1, token_budget=1)
        admission.start()
        assert not admission.ready
        engine.warm.set()
        await until(lambda: admission.ready)
        await admission.drain(5)
        assert not admission.ready

    run(scenario)


def test_a_failed_warm_up_leaves_the_server_unready_but_answering() -> None:
    class Broken(FakeEngine):
        def warm_up(self) -> None:
            raise RuntimeError("no")

    async def scenario() -> None:
        admission = Admission(Broken(), max_queued=1, token_budget=1)
        await admission.submit(request_of(1))
        assert not admission.ready
        await admission.drain(5)

    run(scenario)


def test_times_are_filled_in() -> None:
    async def scenario() -> None:
        async with Busy(delay_s=0.02) as busy:
            (waiting,) = await busy.queue(1)
            busy.gate.set()
            result = await waiting
            assert result.queue_ms >= 20
            assert result.model_ms >= 20

    run(scenario)


def test_no_wake_up_is_lost_under_load() -> None:
    async def scenario() -> None:
        engine = FakeEngine()
        admission = Admission(engine, max_queued=10_000, token_budget=40, passes_ahead=1)
        rounds = [asyncio.gather(*(admission.submit(request_of(i)) for i in range(50))) for _ in range(20)]
        async with asyncio.timeout(20):
            for round_ in rounds:
                await round_
                await admission.submit(request_of(99))
        assert sum(map(len, engine.batches)) == 20 * 51
        assert max(map(len, engine.batches)) <= 4
        await admission.drain(5)

    run(scenario)
