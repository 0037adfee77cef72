"""`Server-Timing`: where a request's time went."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openjev_server.http.constants import SERVER_TIMING_HEADER

__all__ = ["ServerTimingMiddleware", "record_timing"]

TIMINGS = "openjev.timings"


def record_timing(scope: Scope, name: str, milliseconds: float) -> None:
    """Adds one duration to the response's header."""
    scope.setdefault(TIMINGS, {})[name] = milliseconds


class ServerTimingMiddleware:
    """Sends the recorded durations, and `total` until the response starts, all in milliseconds."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        recorded: dict[str, float] = {}

        async def send_with_timing(message: Message) -> None:
            if message["type"] == "http.response.start":
                durations = {**recorded, "total": 1000 * (time.perf_counter() - started)}
                value = ", ".join(f"{name};dur={duration:.1f}" for name, duration in durations.items())
                header = (SERVER_TIMING_HEADER.encode(), value.encode())
                message = {**message, "headers": [*message.get("headers", ()), header]}
            await send(message)

        await self.app({**scope, TIMINGS: recorded}, receive, send_with_timing)
