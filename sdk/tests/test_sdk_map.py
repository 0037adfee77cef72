"""`map`: ordered, lazy, bounded, cancellable."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import httpx
import pytest
from mock_host import GOOD
from openjev_sdk import APIError, AsyncClient, BadRequestError, Client, Decision, Noul, OpenJevError, UsageError

ASK = {"q": Noul("?")}


def echo(request: httpx.Request) -> httpx.Response:
    """Answer with the state as model name; 400 for the state 'bad'."""
    state = json.loads(request.content)["state"]
    if state == "bad":
        return httpx.Response(400, json={"detail": "bad state"})
    return httpx.Response(200, json={**GOOD, "model": state})


class Drawn:
    """An endless iterable that counts what is drawn."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Iterator[str]:
        for number in itertools.count():
            self.count += 1
            yield str(number)


def test_results_come_in_the_order_of_the_states() -> None:
    first_may_go = threading.Event()

    def handler(request: httpx.Request) -> httpx.Response:
        state = json.loads(request.content)["state"]
        if state == "0":
            assert first_may_go.wait(10)
        if state == "3":
            first_may_go.set()
        return echo(request)

    with Client(transport=httpx.MockTransport(handler)) as client:
        decisions = list(client.map(map(str, range(20)), ASK, concurrency=4))
    assert [decision.model for decision in decisions] == [str(n) for n in range(20)]


def test_nothing_is_drawn_before_the_first_result_is_taken_and_little_ahead() -> None:
    drawn = Drawn()
    with Client(transport=httpx.MockTransport(echo)) as client:
        results = client.map(drawn, ASK, concurrency=5)
        assert drawn.count == 0
        assert [next(results).model for _ in range(100)] == [str(n) for n in range(100)]
        assert drawn.count <= 100 + 5
        results.close()


def test_as_many_requests_as_asked_for_are_on_their_way_and_no_more() -> None:
    running, most, lock = 0, 0, threading.Lock()
    all_there = threading.Barrier(3, timeout=10)

    def handler(request: httpx.Request) -> httpx.Response:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        all_there.wait()
        with lock:
            running -= 1
        return echo(request)

    with Client(transport=httpx.MockTransport(handler)) as client:
        assert len(list(client.map(["a"] * 9, ASK, concurrency=3))) == 9
    assert most == 3


def test_an_error_is_raised_at_its_place() -> None:
    with Client(transport=httpx.MockTransport(echo)) as client:
        results = client.map(["a", "b", "bad", "c"], ASK)
        assert [next(results).model, next(results).model] == ["a", "b"]
        with pytest.raises(BadRequestError):
            next(results)
        with pytest.raises(StopIteration):
            next(results)


def test_or_returned_there() -> None:
    with Client(transport=httpx.MockTransport(echo)) as client:
        states: Any = ["a", "bad", "c", None]
        results = list(client.map(states, ASK, on_error="return"))
    assert [type(result) for result in results] == [Decision, BadRequestError, Decision, UsageError]


def test_errors_of_the_callers_own_are_always_raised() -> None:
    def states() -> Iterator[str]:
        yield "a"
        raise KeyError("mine")

    def broken(request: httpx.Request) -> httpx.Response:
        raise RuntimeError("a transport of their own")

    with Client(transport=httpx.MockTransport(echo)) as client, pytest.raises(KeyError):
        list(client.map(states(), ASK, on_error="return"))
    with Client(transport=httpx.MockTransport(broken)) as client, pytest.raises(RuntimeError):
        list(client.map(["a"], ASK, on_error="return"))


@pytest.mark.parametrize("arguments", [{"concurrency": 0}, {"on_error": "ignore"}, {"questions": {}}])
def test_arguments_are_checked_at_the_call(arguments: Any) -> None:
    with Client() as client, pytest.raises(UsageError):
        client.map(["a"], **{"questions": ASK, **arguments})


def test_closing_early_draws_and_sends_nothing_more() -> None:
    sent: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append("x")
        return echo(request)

    drawn = Drawn()
    with Client(transport=httpx.MockTransport(handler)) as client:
        results = client.map(drawn, ASK, concurrency=2)
        next(results)
        results.close()
        assert list(results) == []
    assert drawn.count == 2
    assert len(sent) <= 2


def run_async(handler: Any, states: Any, **arguments: Any) -> list[Decision | OpenJevError]:
    async def run() -> list[Decision | OpenJevError]:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            return [result async for result in client.map(states, ASK, **arguments)]

    return asyncio.run(run())


async def aecho(request: httpx.Request) -> httpx.Response:
    state = json.loads(request.content)["state"]
    await asyncio.sleep(0.002 * (int(state) % 3) if state.isdigit() else 0)
    return echo(request)


def test_async_results_come_in_order_from_iterables_of_both_kinds() -> None:
    async def states() -> AsyncIterator[str]:
        for number in range(20):
            yield str(number)

    for source in (states(), [str(n) for n in range(20)]):
        results = run_async(aecho, source, concurrency=4)
        assert [r.model for r in results if isinstance(r, Decision)] == [str(n) for n in range(20)]


def test_async_errors() -> None:
    results = run_async(aecho, ["a", "bad", "c"], on_error="return", concurrency=1)
    assert [type(result) for result in results] == [Decision, BadRequestError, Decision]
    with pytest.raises(APIError):
        run_async(aecho, ["a", "bad", "c"])


def test_async_arguments_are_checked_at_the_call() -> None:
    async def run() -> None:
        async with AsyncClient() as client:
            client.map(["a"], ASK, concurrency=0)

    with pytest.raises(UsageError):
        asyncio.run(run())


def test_async_closing_early_cancels_what_is_on_its_way() -> None:
    started, cancelled = 0, 0

    async def handler(request: httpx.Request) -> httpx.Response:
        nonlocal started, cancelled
        if json.loads(request.content)["state"] == "0":
            return echo(request)
        started += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled += 1
            raise
        return echo(request)

    async def run() -> int:
        drawn = Drawn()
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            async with aclosing(client.map(drawn, ASK, concurrency=4)) as results:
                async for _ in results:
                    await asyncio.sleep(0.01)
                    break
            return drawn.count

    assert asyncio.run(asyncio.wait_for(run(), 10)) == 4
    assert started == cancelled == 3


def test_cancelling_the_one_who_waits_cancels_all() -> None:
    cancelled = 0

    async def handler(request: httpx.Request) -> httpx.Response:
        nonlocal cancelled
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled += 1
            raise
        return echo(request)

    async def run() -> None:
        async with (
            AsyncClient(transport=httpx.MockTransport(handler)) as client,
            aclosing(client.map(Drawn(), ASK, concurrency=3)) as results,
        ):
            async for _ in results:
                pass

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(run(), 0.1))
    assert cancelled == 3


@pytest.mark.parametrize("states", ["abc", b"abc", {"text": "one state"}, None, 3])
def test_one_state_is_not_many(states: Any) -> None:
    """A string would be walked character by character, a mapping key by key."""
    client = Client(transport=httpx.MockTransport(lambda _: httpx.Response(500)))
    with pytest.raises(UsageError, match="iterable of states"):
        client.map(states, {"q": Noul("?")})
    with pytest.raises(UsageError, match="iterable of states"):
        AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(500))).map(states, {"q": Noul("?")})
