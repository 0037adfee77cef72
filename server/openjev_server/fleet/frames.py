"""Frames: how front and engine process cut the stream of bytes between them into messages.

On the stream a frame is its length (8 bytes) and a body: kind (4 bytes), 4 unused bytes, the number of the request
that it is about (8 bytes), payload. All numbers are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

__all__ = ["MAX_FRAME_BYTES", "Frame", "FrameKind", "FrameSplitter", "MalformedFrame", "encode_frame"]

MAX_FRAME_BYTES = 1 << 28
"""A longer frame is a broken stream: the largest request of the default limits has 1 MiB."""

LENGTH = struct.Struct("<Q")
HEAD = struct.Struct("<IIQ")


class MalformedFrame(ValueError):
    """Bytes that no peer of ours would send."""


class FrameKind(IntEnum):
    # To the engine.
    SETUP = 1
    """JSON: what to load, and how."""
    REQUEST = 2
    CANCEL = 3
    """Nobody waits for this request any more."""
    STOP = 4
    """Finish and end."""
    # From the engine.
    PROGRESS = 16
    """Text: the name of a tensor that has been loaded."""
    FAILED = 17
    """Text: why the engine cannot be loaded, in one sentence."""
    LOADED = 18
    """JSON: EngineInfo."""
    WARM = 19
    RESULT = 20
    ERROR = 21
    """JSON: an EngineError by kind."""
    CANCELLED = 22


@dataclass(frozen=True, slots=True)
class Frame:
    kind: FrameKind
    number: int
    """Of the request it is about; 0 when it is about none."""
    payload: memoryview
    """Writable, owned by this frame."""


class FrameSplitter:
    """Cuts a stream of bytes, in whatever pieces it comes, into frames."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yields every frame that is complete now. Raises MalformedFrame; nothing after that can be read."""
        self._received += data
        while len(self._received) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._received)
            if not HEAD.size <= length <= MAX_FRAME_BYTES:
                raise MalformedFrame(f"a frame of {length} bytes")
            stop = LENGTH.size + length
            if len(self._received) < stop:
                return
            body = self._received[LENGTH.size : stop]
            del self._received[:stop]
            kind, unused, number = HEAD.unpack_from(body)
            if unused or kind not in FrameKind._value2member_map_:
                raise MalformedFrame(f"a frame of unknown kind {kind}")
            yield Frame(FrameKind(kind), number, memoryview(body)[HEAD.size :])


def encode_frame(kind: FrameKind, number: int = 0, payload: bytes = b"") -> bytes:
    """One frame, its length included. Raises MalformedFrame for a payload that the peer would refuse."""
    length = HEAD.size + len(payload)
    if length > MAX_FRAME_BYTES:
        raise MalformedFrame(f"a frame of {length} bytes")
    return b"".join((LENGTH.pack(length), HEAD.pack(kind, 0, number), payload))
