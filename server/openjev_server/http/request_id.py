"""A request id on every response, whoever produced it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openjev_server.http.constants import REQUEST_ID_HEADER
from openjev_server.wire.request_id import new_request_id

__all__ = ["RequestIdMiddleware"]


class RequestIdMiddleware:
    """Adds `x-typesafe-request-id`; the official SDK raises when a caller asks for it and it is not there."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = (REQUEST_ID_HEADER.encode(), new_request_id().encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        await self.app(scope, receive, send_with_id)
