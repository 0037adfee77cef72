"""When to try again, and after how long.

The rules are the official client's: `retry-after-ms`, then `Retry-After`, then an exponential backoff with
jitter; nothing starts that would reach the total budget.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from itertools import count
from typing import Protocol, TypeVar

import httpx

from openjev_sdk._constants import DEFAULT_MAX_RETRIES, DEFAULT_RETRY_BUDGET_S
from openjev_sdk._errors import APIConnectionError, APIError, UsageError

__all__ = ["SYSTEM_CLOCK", "Backoff", "Clock", "Policy", "Retries", "retry", "retry_after_s", "retry_async"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    """Everything of the outside world that retrying looks at; tests put their own in place."""

    monotonic: Callable[[], float] = time.monotonic
    """Seconds since some fixed moment."""
    now: Callable[[], float] = time.time
    """Unix time, for `Retry-After` dates."""
    sleep: Callable[[float], None] = time.sleep
    sleep_async: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    """Uniform in [0, 1)."""


SYSTEM_CLOCK = Clock()


class Policy(Protocol):
    """Decides about the next attempt."""

    def wait_s(self, error: Exception, *, attempt: int, elapsed_s: float, clock: Clock) -> float | None:
        """Seconds to wait after `attempt` (1: the first) failed, None to give up."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential waits: `initial_s` doubled per attempt up to `maximum_s`, minus a random part of it."""

    initial_s: float = 0.5
    maximum_s: float = 5.0
    jitter: float = 0.25
    """The largest part of a wait that chance takes off, 0 to 1."""

    def wait_s(self, attempt: int, chance: float) -> float:
        """Seconds after the `attempt`-th failure (1: the first); `chance` is uniform in [0, 1)."""
        # 2**1023 is the largest power of two in a float; the waits stop growing long before.
        wait = min(self.maximum_s, self.initial_s * 2.0 ** min(attempt - 1, 1023))
        return wait * (1 - self.jitter * chance)


@dataclass(frozen=True, slots=True)
class Retries:
    """The policy of the clients: 408, 429, 5xx, failed connections and timeouts.

    Raises:
        UsageError: a negative count, a budget that is not positive.
    """

    max_retries: int = DEFAULT_MAX_RETRIES
    """After the first attempt; 0 turns retrying off."""
    budget_s: float | None = DEFAULT_RETRY_BUDGET_S
    """A retry that would start this long after the first attempt, or later, is not made. None: no limit."""
    backoff: Backoff = field(default_factory=Backoff)

    def __post_init__(self) -> None:
        if not isinstance(self.max_retries, int) or self.max_retries < 0:
            raise UsageError(f"max_retries must be 0 or more, not {self.max_retries!r}")
        if self.budget_s is not None and not self.budget_s > 0:
            raise UsageError(f"the retry budget must be a positive number of seconds, not {self.budget_s!r}")

    def wait_s(self, error: Exception, *, attempt: int, elapsed_s: float, clock: Clock) -> float | None:
        """Seconds to wait after `attempt` (1: the first) failed, None to give up."""
        if attempt > self.max_retries or not _may_pass(error):
            return None
        wait = retry_after_s(error.headers, clock.now()) if isinstance(error, APIError) else None
        if wait is None:
            wait = self.backoff.wait_s(attempt, clock.random())
        return None if self.budget_s is not None and elapsed_s + wait >= self.budget_s else wait


def _may_pass(error: Exception) -> bool:
    if isinstance(error, APIError):
        return error.status in {408, 429} or 500 <= error.status < 600
    return isinstance(error, APIConnectionError)


def retry_after_s(headers: httpx.Headers, now: float) -> float | None:
    """The wait that a host asks for: `retry-after-ms`, else `Retry-After` in seconds or as a date; else None."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None and milliseconds >= 0:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds if seconds >= 0 else None
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now) if value else None
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str | None) -> float | None:
    """A finite number; an empty value counts as 0, as it does for the official client."""
    if text is None:
        return None
    try:
        number = float(text.strip() or 0)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def retry(attempt: Callable[[int], T], policy: Policy, clock: Clock = SYSTEM_CLOCK) -> T:
    """The first result of `attempt(retries so far)`; its last error once the policy gives up."""
    started = clock.monotonic()
    for number in count(1):
        try:
            return attempt(number - 1)
        except Exception as error:
            wait = policy.wait_s(error, attempt=number, elapsed_s=clock.monotonic() - started, clock=clock)
            if wait is None:
                raise
        clock.sleep(wait)
    raise AssertionError("unreachable")


async def retry_async(attempt: Callable[[int], Awaitable[T]], policy: Policy, clock: Clock = SYSTEM_CLOCK) -> T:
    """`retry` for coroutines."""
    started = clock.monotonic()
    for number in count(1):
        try:
            return await attempt(number - 1)
        except Exception as error:
            wait = policy.wait_s(error, attempt=number, elapsed_s=clock.monotonic() - started, clock=clock)
            if wait is None:
                raise
        await clock.sleep_async(wait)
    raise AssertionError("unreachable")
