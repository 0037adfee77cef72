"""One end of the socket between the front and an engine process."""

from __future__ import annotations

import asyncio
import logging
from typing import cast

from openjev_server.fleet.frames import Frame, FrameKind, FrameSplitter, MalformedFrame, encode_frame

__all__ = ["Connection"]

logger = logging.getLogger(__name__)


class Connection(asyncio.Protocol):
    """Sends frames, and hands received ones to `received`; a subclass says what they mean.

    A frame that makes no sense ends the connection: what follows it cannot be trusted either.
    """

    def __init__(self) -> None:
        self._splitter = FrameSplitter()
        self._transport: asyncio.Transport | None = None

    @property
    def up(self) -> bool:
        """Whether the peer can still be reached, as far as is known."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, kind: FrameKind, number: int = 0, payload: bytes = b"") -> None:
        """Queues a frame; once the peer is gone, does nothing. Raises MalformedFrame for one that is too long."""
        frame = encode_frame(kind, number, payload)
        if self._transport is not None and self.up:
            self._transport.write(frame)

    def close(self) -> None:
        """Ends the connection once everything is sent."""
        if self._transport is not None:
            self._transport.close()

    def received(self, frame: Frame) -> None:
        """A frame has come. May raise MalformedFrame."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not checked: uvloop's transports are not asyncio's by inheritance.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._splitter.feed(data):
                self.received(frame)
        except MalformedFrame as error:
            logger.error("The other end of an engine's socket sent %s; the connection ends", error)
            if self._transport is not None:
                self._transport.abort()
