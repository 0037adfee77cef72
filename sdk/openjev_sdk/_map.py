"""Many calls at once, results in the order of the inputs, inputs drawn only as results are taken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
)
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal, TypeVar

from openjev_sdk._errors import OpenJevError, UsageError

__all__ = ["OnError", "check_map", "map_async", "map_threads"]

S = TypeVar("S")
R = TypeVar("R")

OnError = Literal["raise", "return"]
"""What becomes of an `OpenJevError`: raised at its place in the order, or put there as the result."""


def check_map(states: object, concurrency: int, on_error: OnError) -> None:
    """Check what a caller passed.

    Raises:
        UsageError: one state in place of many, a concurrency below 1, or an unknown `on_error`.
    """
    if isinstance(states, str | bytes | Mapping):
        raise UsageError(f"states must be an iterable of states, not one {type(states).__name__}")
    if not isinstance(states, Iterable | AsyncIterable):
        raise UsageError(f"states must be an iterable of states, not {states!r}")
    if concurrency < 1:
        raise UsageError(f"concurrency must be 1 or more, not {concurrency!r}")
    if on_error not in {"raise", "return"}:
        raise UsageError(f"on_error must be 'raise' or 'return', not {on_error!r}")


def map_threads(
    call: Callable[[S], R], items: Iterable[S], concurrency: int, on_error: OnError
) -> Generator[R | OpenJevError, None, None]:
    """`call` for every item in threads. At most `concurrency` items are drawn ahead of the results taken.

    Closing the iterator drops what has not started; calls on their way end in the background, unseen.
    """
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="openjev-map")
    pending: deque[Future[R | OpenJevError]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(call, item))
            if len(pending) == concurrency:
                yield _result(pending.popleft(), on_error)
        while pending:
            yield _result(pending.popleft(), on_error)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _result(future: Future[R], on_error: OnError) -> R | OpenJevError:
    try:
        return future.result()
    except OpenJevError as error:
        if on_error == "raise":
            raise
        return error


async def map_async(
    call: Callable[[S], Awaitable[R]], items: Iterable[S] | AsyncIterable[S], concurrency: int, on_error: OnError
) -> AsyncGenerator[R | OpenJevError, None]:
    """`call` for every item in tasks. At most `concurrency` items are drawn ahead of the results taken.

    Closing the iterator cancels the calls on their way.
    """
    pending: deque[asyncio.Future[R | OpenJevError]] = deque()
    try:
        async for item in _each(items):
            pending.append(asyncio.ensure_future(call(item)))
            if len(pending) == concurrency:
                yield await _result_async(pending, on_error)
        while pending:
            yield await _result_async(pending, on_error)
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def _result_async(pending: deque[asyncio.Future[R]], on_error: OnError) -> R | OpenJevError:
    try:
        return await pending[0]
    except OpenJevError as error:
        if on_error == "raise":
            raise
        return error
    finally:
        # Only now: a task that is awaited must still be cancelled when the awaiting side is.
        if pending[0].done():
            pending.popleft()


async def _each(items: Iterable[S] | AsyncIterable[S]) -> AsyncIterator[S]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
