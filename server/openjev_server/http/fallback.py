"""The last resort: our own bugs, and a server that ends, answer as JSON, too."""

from __future__ import annotations

import asyncio
import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openjev_server.http.responses import error_response
from openjev_server.wire.errors import internal_error, stopping

__all__ = ["FallbackMiddleware"]

logger = logging.getLogger(__name__)


class FallbackMiddleware:
    """Turns an unexpected exception into a logged 500 with a `detail`, unless the response has already begun.

    Only a server that stops cancels a request's task: that becomes a 503.
    """

    def __init__(self, app: ASGIApp, *, retry_after_s: int) -> None:
        self.app = app
        self._retry_after_s = retry_after_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_noting_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, send_noting_start)
        except asyncio.CancelledError:
            if started:
                raise
            await error_response(stopping(self._retry_after_s))(scope, receive, send)
        except Exception:
            if started:
                raise
            logger.exception("Unexpected error while answering %s %s", scope["method"], scope["path"])
            await error_response(internal_error())(scope, receive, send)
