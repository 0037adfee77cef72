"""Reading a request body without ever holding more than its limit."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers
from starlette.types import Receive

from openjev_server.http.disconnect import ClientDisconnected
from openjev_server.wire.errors import body_too_large, request_timeout

__all__ = ["read_body"]

LONGEST_LENGTH_DIGITS = 18


async def read_body(headers: Headers, receive: Receive, *, limit: int, timeout_s: float) -> bytes:
    """The whole body, at most `limit` bytes of it, within `timeout_s` seconds.

    A declared length over the limit is refused before anything is read, so `Expect: 100-continue` clients never send
    it; a chunked body is refused once it grows over. The server then discards what still arrives, which lets a client
    that sends everything first read the answer instead of a reset.

    Raises:
        WireError: 413, the body is too large; 408, it is too slow.
        ClientDisconnected: the client left before the end of its body.
    """
    declared = headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > LONGEST_LENGTH_DIGITS or int(declared) > limit):
        raise body_too_large(limit)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(receive, limit)
    except TimeoutError:
        raise request_timeout(timeout_s) from None


async def _read(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise body_too_large(limit)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)
