"""Work that stops when nobody waits for its result any more."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

__all__ = ["ClientDisconnected", "disconnected", "unless_disconnected"]

T = TypeVar("T")

CLIENT_CLOSED_REQUEST = 499
"""nginx's status for it; nobody reads it, but a proxy's log may."""


class ClientDisconnected(Exception):
    """The client closed its connection before the answer."""


def disconnected(_request: Request, _error: Exception) -> Response:
    """Exception handler: an answer into the void."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which is cancelled as soon as the client leaves. The body must have been read.

    Raises:
        ClientDisconnected: the client left first.
    """
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((task, watcher), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnected
        return task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
