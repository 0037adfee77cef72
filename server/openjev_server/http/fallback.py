"""The last resort: our own bugs answer as JSON, too."""

from __future__ import annotations

import logging

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openjev_server.http.responses import error_response
from openjev_server.wire.errors import internal_error

__all__ = ["FallbackMiddleware"]

logger = logging.getLogger(__name__)


class FallbackMiddleware:
    """Turns an unexpected exception into a logged 500 with a `detail`, unless the response has already begun."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

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
        except Exception:
            if started:
                raise
            logger.exception("Unexpected error while answering %s %s", scope["method"], scope["path"])
            await error_response(internal_error())(scope, receive, send)
