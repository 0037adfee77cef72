"""uvicorn's HTTP/1.1 protocol where it would leave a client without a proper answer, or wait for one forever."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any

import httptools
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from openjev_server.http.constants import REQUEST_ID_HEADER
from openjev_server.wire.errors import WireError, header_too_large, malformed_http, request_timeout
from openjev_server.wire.json import to_json_bytes
from openjev_server.wire.request_id import new_request_id

__all__ = ["ApiProtocol", "ConnectionLimits"]

UPGRADE = b"upgrade"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LINGER_S = 5.0
"""How long a connection whose request was refused is still read, so that the client gets to the refusal."""
PROBE_S = 1.0
"""Between two looks at whether a client that has closed its sending side is still there."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a client may keep a connection waiting with."""

    max_header_bytes: int
    """Request line and headers; also trailers and what else comes between two pieces of a body."""
    receive_timeout_s: float
    """Seconds for a head from its first byte, and for a body that nobody reads any more."""


class ApiProtocol(HttpToolsProtocol):
    """Declines upgrades without losing the request, answers bytes that are no HTTP as JSON, and bounds what it reads.

    Java's HttpClient (LangChain4j, Spring) offers `Upgrade: h2c` with every cleartext POST. The parser takes what
    follows such a head for another protocol, so the body would be lost: the request is read again without the offer.

    A client that only closes its sending side (`nc -N`) gets its answer. One that closed all of its connection looks
    the same until something is written to it, so after a while an interim response is (RFC 9110, 15.2: any client
    must be able to read it): the kernel of a client that is gone answers with a reset.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._application, self.app = self.app, self._run
        self._current: RequestResponseCycle | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._head_bytes = 0
        self._unbroken_bytes = 0
        self._moved_on = False
        self._fault: WireError | None = None
        self._refusal: WireError | None = None
        self._refused = False

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._task = asyncio.current_task()
        await self._application(scope, receive, send)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the wait for a first request."""
        super().connection_made(transport)
        self._expect_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tells the request that is running."""
        for timer in self._timers.values():
            timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feeds the parser."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._moved_on = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._should_upgrade():
                self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError:
            self._refuse(self._fault or malformed_http())
            return
        # The parser keeps an unfinished header to itself.
        self._unbroken_bytes = 0 if self._moved_on else self._unbroken_bytes + len(data)
        if self._unbroken_bytes > self._limits.max_header_bytes:
            self._refuse(header_too_large(self._limits.max_header_bytes))
            return
        self._expect_more()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keeps the connection open, unless nothing is left to answer on it."""
        if self._refused and not self._refusal:
            return False
        if self.cycle is None or self.cycle.response_complete or (self.cycle.more_body and not self.pipeline):
            return False
        self.cycle.keep_alive = False
        self._after(PROBE_S, self._probe)
        return True

    def on_message_begin(self) -> None:
        """A head starts."""
        super().on_message_begin()
        self._moved_on = True
        self._head_bytes = 0
        self._after(self._limits.receive_timeout_s, self._head_is_late)

    def on_url(self, url: bytes) -> None:
        """A piece of it."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of a head or a trailer."""
        self._count(len(name) + len(value) + len(": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Starts the request."""
        self._cancel(self._head_is_late)
        super().on_headers_complete()
        if not self.pipeline:
            self._current = self.cycle

    def on_chunk_header(self) -> None:
        """A chunk of the body starts."""
        self._moved_on = True

    def on_body(self, body: bytes) -> None:
        """A piece of it."""
        self._moved_on = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        self._moved_on = True
        self._cancel(self._body_is_late)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Goes on with the next request, the rest of this one's body, or the refusal of what followed."""
        self._current = self.pipeline[-1][0] if self.pipeline else self._current
        super().on_response_complete()
        if not self.cycle.response_complete or self.transport.is_closing():
            return
        if self._refusal is not None:
            self._send_refusal(self._refusal)
        elif self.cycle.more_body:
            self._after(self._limits.receive_timeout_s, self._body_is_late)

    def shutdown(self) -> None:
        """Closes the connection, at once or after the answers that it owes."""
        if self._refused and not self._refusal:
            self.transport.close()
        else:
            super().shutdown()

    def give_up_on_body(self) -> None:
        """Cancels the running request if its body has not arrived."""
        current = self._current
        if current is not None and current.more_body and not current.response_complete and self._task is not None:
            self._task.cancel()

    def abort_if_answering(self) -> None:
        """Cuts the connection of a client that does not read the answer which is being sent."""
        current = self._current
        if current is not None and current.response_started and not current.response_complete:
            self.transport.abort()

    def _after(self, seconds: float, then: Any) -> None:
        self._cancel(then)
        self._timers[then.__name__] = self.loop.call_later(seconds, then)

    def _cancel(self, then: Any) -> None:
        if (timer := self._timers.pop(then.__name__, None)) is not None:
            timer.cancel()

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._limits.max_header_bytes:
            self._fault = header_too_large(self._limits.max_header_bytes)
            raise self._fault

    def _expect_more(self) -> None:
        """Bounds the wait for a request, or for the rest of a body that is being discarded, by the keep-alive timeout.

        A head that has begun has a time limit of its own.
        """
        between = self.cycle is None or self.cycle.response_complete
        waiting = self.timeout_keep_alive_task is not None or self._head_is_late.__name__ in self._timers
        if between and not waiting and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _head_is_late(self) -> None:
        self._refuse(request_timeout(self._limits.receive_timeout_s))

    def _body_is_late(self) -> None:
        self.transport.close()

    def _refuse(self, error: WireError) -> None:
        """Reads no further request from this connection; `error` is sent when those before are answered."""
        self._refused = True
        self._cancel(self._head_is_late)
        cycle = self.cycle
        if self.pipeline and cycle.more_body:
            # This one's own body is what cannot be read.
            self.pipeline.popleft()
            if self._current is not None:
                self.cycle = self.pipeline[0][0] if self.pipeline else self._current
            self._refusal = error
        elif cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._refusal = error
        else:
            self._send_refusal(error)

    def _send_refusal(self, error: WireError) -> None:
        """Sends a `detail` and a request id, and closes the sending side; what still arrives is discarded."""
        self._refusal = None
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        body = to_json_bytes(error.body)
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (REQUEST_ID_HEADER.encode(), new_request_id().encode()),
            (b"connection", b"close"),
        ]
        lines = [STATUS_LINE[error.status], *(name + b": " + value + b"\r\n" for name, value in headers), b"\r\n", body]
        self.transport.write(b"".join(lines))
        self.transport.write_eof()
        self.flow.resume_reading()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(LINGER_S, self.timeout_keep_alive_handler)

    def _probe(self) -> None:
        """Looks after a client that has closed its sending side."""
        if self.transport.is_closing():
            return
        if self.transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        alone = self._current is self.cycle and not self.cycle.response_started
        if alone and self.scope["http_version"] == "1.1":
            self.transport.write(CONTINUE)
        self._after(PROBE_S, self._probe)

    def _should_upgrade(self) -> bool:
        """Makes the base class leave the request alone until the offer is declined."""
        return self._get_upgrade() is not None

    def _decline_upgrade(self, rest: bytes) -> None:
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()]
        lines += [name + b": " + value for name, value in self.headers if name != UPGRADE]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)
