"""Retries: what is tried again, after how long, and when it ends. No test sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mock_host import GOOD, FakeTime, Script
from openjev_sdk import APIConnectionError, APIError, APITimeoutError, AsyncClient, Client, Noul, OpenJevError
from openjev_sdk._retry import Backoff, retry_after_s

ASK = {"q": Noul("?")}
NOW = 1_700_000_000.0


def reply(status: int, **headers: str) -> Callable[[], httpx.Response]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda: httpx.Response(status, json={"detail": "x"}, headers=named)


def run(replies: list[Any], time: FakeTime, asynchronous: bool, **settings: Any) -> tuple[Script, Exception | None]:
    script = Script(replies)
    transport = httpx.MockTransport(script)

    async def decide() -> None:
        async with AsyncClient(transport=transport, clock=time.clock(NOW), **settings) as client:
            await client.decide("s", ASK)

    try:
        if asynchronous:
            asyncio.run(decide())
        else:
            with Client(transport=transport, clock=time.clock(NOW), **settings) as client:
                client.decide("s", ASK)
    except OpenJevError as error:
        return script, error
    return script, None


both = pytest.mark.parametrize("asynchronous", [False, True])


@both
@pytest.mark.parametrize(
    "failure",
    [*(reply(status) for status in (408, 429, 500, 503, 529, 599)), httpx.ConnectError("x"), httpx.ReadTimeout("x")],
)
def test_what_may_pass_is_tried_again(failure: Any, asynchronous: bool) -> None:
    time = FakeTime()
    script, error = run([failure, failure, GOOD], time, asynchronous)
    assert error is None
    assert time.slept == [0.5, 1.0]
    assert [r.headers.get("openjev-retry-count") for r in script.requests] == [None, "1", "2"]
    assert len({r.content for r in script.requests}) == 1


@both
@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422, 302])
def test_what_will_not_pass_is_not(status: int, asynchronous: bool) -> None:
    time = FakeTime()
    script, error = run([reply(status), GOOD], time, asynchronous)
    assert isinstance(error, APIError)
    assert (len(script.requests), time.slept) == (1, [])


def test_an_unusable_body_is_not_asked_for_again() -> None:
    script, error = run([httpx.Response(200, json=[]), GOOD], FakeTime(), False)
    assert error is not None
    assert len(script.requests) == 1


@both
def test_the_last_error_is_raised(asynchronous: bool) -> None:
    script, error = run([reply(500), httpx.ConnectError("a"), httpx.ReadTimeout("b")], FakeTime(), asynchronous)
    assert isinstance(error, APITimeoutError)
    assert len(script.requests) == 3


@pytest.mark.parametrize("retries", [0, 1, 4])
def test_max_retries(retries: int) -> None:
    script, error = run([httpx.ConnectError("x")], FakeTime(), False, max_retries=retries)
    assert isinstance(error, APIConnectionError)
    assert len(script.requests) == retries + 1


def test_backoff_doubles_up_to_its_maximum_less_the_jitter() -> None:
    time = FakeTime(chance=0.0)
    run([reply(500)], time, False, max_retries=6, retry_budget=None)
    assert time.slept == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    time = FakeTime(chance=0.999999)
    run([reply(500)], time, False, max_retries=2)
    assert time.slept == pytest.approx([0.375, 0.75], rel=1e-5)


@given(attempt=st.integers(1, 10_000), chance=st.floats(0, 1, exclude_max=True))
def test_backoff_stays_within_its_bounds(attempt: int, chance: float) -> None:
    wait = Backoff().wait_s(attempt, chance)
    full = min(5.0, 0.5 * 2.0 ** min(attempt - 1, 10))
    assert 0.75 * full <= wait <= full


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry_after_ms": "250"}, 0.25),
        ({"retry_after_ms": "250", "retry_after": "9"}, 0.25),
        ({"retry_after": "2"}, 2.0),
        ({"retry_after": "1.5"}, 1.5),
        ({"retry_after": "0"}, 0.0),
        ({"retry_after": formatdate(NOW + 3, usegmt=True)}, 3.0),
        ({"retry_after": formatdate(NOW - 60, usegmt=True)}, 0.0),
        ({"retry_after_ms": "soon", "retry_after": "2"}, 2.0),
        ({"retry_after_ms": "-1", "retry_after": "2"}, 2.0),
        ({"retry_after": "soon"}, 0.5),
        ({"retry_after": "-1"}, 0.5),
        ({"retry_after": "nan"}, 0.5),
        ({"retry_after_ms": "inf"}, 0.5),
    ],
)
def test_the_host_says_how_long(headers: dict[str, str], wait: float) -> None:
    time = FakeTime()
    run([reply(429, **headers), GOOD], time, False)
    assert time.slept == pytest.approx([wait])


@given(st.text(), st.text())
def test_no_header_value_breaks_it(milliseconds: str, seconds: str) -> None:
    raw = [(b"retry-after-ms", milliseconds.encode()), (b"retry-after", seconds.encode())]
    wait = retry_after_s(httpx.Headers(raw), NOW)
    assert wait is None or wait >= 0


@both
def test_a_wait_beyond_the_budget_ends_it_at_once(asynchronous: bool) -> None:
    time = FakeTime()
    script, error = run([reply(429, retry_after="60"), GOOD], time, asynchronous)
    assert isinstance(error, APIError)
    assert (len(script.requests), time.slept) == (1, [])


def test_the_budget_covers_attempts_and_waits() -> None:
    time = FakeTime(tick=9.0)  # every attempt takes 9 s
    script, _ = run([reply(500)], time, False, max_retries=10, retry_budget=30.0)
    assert len(script.requests) == 3
    assert time.slept == [0.5, 1.0]
    time = FakeTime(tick=9.0)
    script, _ = run([reply(500)], time, False, max_retries=10, retry_budget=None)
    assert len(script.requests) == 11
