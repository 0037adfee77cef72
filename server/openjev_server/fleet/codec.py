"""The bytes between the front and an engine process: plain arrays with their shapes, no pickle.

A frame on the stream is its length (8 bytes) and a body: kind (4 bytes), 4 unused bytes, number of the request it is
about (8 bytes), payload. All numbers are little-endian. The payload of a request or result is a row of 64-bit counts
and then the arrays, one after the other, so that reading one is slicing. Control frames carry JSON or text.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.protocol import (
    BlockResult,
    CanvasBlock,
    EngineError,
    EngineInfo,
    EngineRequest,
    EngineResult,
    NonFiniteLogits,
    Redraw,
    SelfConditioning,
)

__all__ = [
    "MAX_FRAME_BYTES",
    "Frame",
    "FrameKind",
    "FrameSplitter",
    "MalformedFrame",
    "decode_error",
    "decode_info",
    "decode_json",
    "decode_request",
    "decode_result",
    "decode_text",
    "encode_error",
    "encode_frame",
    "encode_info",
    "encode_json",
    "encode_request",
    "encode_result",
]

MAX_FRAME_BYTES = 1 << 28
"""A longer frame is a broken stream: the largest request of the default limits has 1 MiB."""

LENGTH = struct.Struct("<Q")
HEAD = struct.Struct("<IIQ")
TIMES = struct.Struct("<dd")
INT = np.dtype("<i4")
FLOAT = np.dtype("<f4")
COUNT = np.dtype("<i8")
NUMBER = np.dtype("<f8")

CONDITIONING = tuple(SelfConditioning)
ERRORS: dict[str, type[EngineError]] = {kind.__name__: kind for kind in (EngineError, NonFiniteLogits)}

Scalar = TypeVar("Scalar", bound=np.generic)


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


def encode_request(request: EngineRequest) -> bytes:
    """Counts, temperatures and entropy bounds, then arrays of 4-byte numbers.

    Counts: steps, self-conditioning, temperatures, state, blocks; per block suffix, replicas, canvas, slots,
    candidates, and steps of its redraw plus one, or 0 without a redraw. Raises MalformedFrame for arrays whose shapes
    contradict each other.
    """
    conditioning = CONDITIONING.index(request.self_conditioning)
    counts = [request.steps, conditioning, len(request.temperatures), len(request.state), len(request.blocks)]
    numbers = list(request.temperatures)
    parts = [request.state]
    for block in request.blocks:
        redraw, slots = block.redraw, len(block.slots)
        redrawn = (len(redraw.tokens), len(block.canvases), slots) if redraw else None
        if len(block.offsets) != slots + 1 or (redraw and not redraw.tokens.shape == redraw.uniforms.shape == redrawn):
            raise MalformedFrame("a block whose arrays contradict each other")
        counts += (len(block.suffix), *block.canvases.shape, slots, len(block.candidates))
        counts.append(1 + len(redraw.tokens) if redraw else 0)
        parts += (block.suffix, block.canvases.ravel(), block.slots, block.candidates, block.offsets)
        if redraw:
            numbers.append(redraw.entropy_bound)
            parts += (redraw.tokens.ravel(), redraw.uniforms.ravel().view(INT))
    head = np.array(counts, COUNT).tobytes() + np.array(numbers, NUMBER).tobytes()
    return head + np.concatenate(parts, dtype=INT).tobytes()


def decode_request(payload: memoryview) -> EngineRequest:
    """Arrays are views of `payload`. Raises MalformedFrame."""
    reader = _Reader(payload)
    steps, conditioning, temperatures, state_length, blocks = reader.counts(5)
    if conditioning >= len(CONDITIONING):
        raise MalformedFrame(f"unknown self-conditioning {conditioning}")
    shapes = [reader.counts(6) for _ in reader.claimed(blocks, 6)]
    numbers = reader.array(NUMBER, temperatures + sum(shape[5] > 0 for shape in shapes)).tolist()
    bounds = iter(numbers[temperatures:])
    state = reader.array(INT, state_length)
    decoded = []
    for suffix, replicas, width, slots, candidates, redrawn in shapes:
        block = CanvasBlock(
            suffix=reader.array(INT, suffix),
            canvases=reader.array(INT, replicas * width).reshape(replicas, width),
            slots=reader.array(INT, slots),
            candidates=reader.array(INT, candidates),
            offsets=reader.array(INT, slots + 1),
        )
        if redrawn:
            shape = (redrawn - 1, replicas, slots)
            tokens = reader.array(INT, math.prod(shape)).reshape(shape)
            uniforms = reader.array(FLOAT, math.prod(shape)).reshape(shape)
            block = replace(block, redraw=Redraw(next(bounds), uniforms, tokens))
        decoded.append(block)
    reader.end()
    return EngineRequest(state, tuple(decoded), steps, CONDITIONING[conditioning], tuple(numbers[:temperatures]))


def encode_result(result: EngineResult) -> bytes:
    """Milliseconds queued and computed; counts: blocks; per block steps, replicas, candidates, slots."""
    counts = [len(result.blocks)]
    parts = [np.zeros(0, FLOAT)]
    for block in result.blocks:
        counts += (*block.log_probs.shape, block.logsumexp.shape[2])
        parts += (block.log_probs.ravel(), block.logsumexp.ravel())
    times = TIMES.pack(result.queue_ms, result.model_ms)
    return times + np.array(counts, COUNT).tobytes() + np.concatenate(parts, dtype=FLOAT).tobytes()


def decode_result(payload: memoryview) -> EngineResult:
    """Arrays are views of `payload`. Raises MalformedFrame."""
    if len(payload) < TIMES.size:
        raise MalformedFrame("a result without its times")
    queue_ms, model_ms = TIMES.unpack_from(payload)
    reader = _Reader(payload[TIMES.size :])
    (blocks,) = reader.counts(1)
    shapes = [reader.counts(4) for _ in reader.claimed(blocks, 4)]
    decoded = []
    for steps, replicas, candidates, slots in shapes:
        block = BlockResult(
            log_probs=reader.array(FLOAT, steps * replicas * candidates).reshape(steps, replicas, candidates),
            logsumexp=reader.array(FLOAT, steps * replicas * slots).reshape(steps, replicas, slots),
        )
        decoded.append(block)
    reader.end()
    return EngineResult(tuple(decoded), queue_ms, model_ms)


def encode_error(error: EngineError) -> bytes:
    """The nearest kind that both sides know, and the message."""
    kind = next(base.__name__ for base in type(error).__mro__ if base.__name__ in ERRORS)
    return encode_json({"kind": kind, "message": str(error)})


def decode_error(payload: memoryview) -> EngineError:
    """An error of the kind that was raised. Raises MalformedFrame."""
    fields = decode_json(payload)
    if fields.get("kind") not in ERRORS:
        raise MalformedFrame("an error of unknown kind")
    return ERRORS[fields["kind"]](fields.get("message", ""))


def encode_info(info: EngineInfo) -> bytes:
    return encode_json(asdict(info))


def decode_info(payload: memoryview) -> EngineInfo:
    """Raises MalformedFrame."""
    try:
        return EngineInfo(**decode_json(payload))
    except TypeError as error:
        raise MalformedFrame(f"not an EngineInfo: {error}") from error


def encode_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def decode_json(payload: memoryview) -> dict[str, Any]:
    """Raises MalformedFrame for anything but an object."""
    try:
        value = json.loads(bytes(payload))
    except ValueError as error:
        raise MalformedFrame("a control frame that is no JSON") from error
    if not isinstance(value, dict):
        raise MalformedFrame("a control frame that is no object")
    return value


def decode_text(payload: memoryview) -> str:
    return bytes(payload).decode(errors="replace")


class _Reader:
    """Takes arrays off the front of a payload, never beyond its end."""

    def __init__(self, payload: memoryview) -> None:
        self._payload = payload
        self._at = 0

    def array(self, dtype: np.dtype[Scalar], length: int) -> NDArray[Scalar]:
        stop = self._at + length * dtype.itemsize
        if stop > len(self._payload):
            raise MalformedFrame("arrays longer than their frame")
        values = np.frombuffer(self._payload[self._at : stop], dtype)
        self._at = stop
        return values

    def counts(self, length: int) -> list[int]:
        values: list[int] = self.array(COUNT, length).tolist()
        if min(values) < 0 or max(values) > MAX_FRAME_BYTES:
            raise MalformedFrame("a length that no frame can have")
        return values

    def claimed(self, entries: int, counts: int) -> range:
        """Refuses a number of entries whose counts alone would not fit, before anybody counts up to it."""
        if entries * counts * COUNT.itemsize > len(self._payload) - self._at:
            raise MalformedFrame("more entries than their frame holds")
        return range(entries)

    def end(self) -> None:
        if self._at != len(self._payload):
            raise MalformedFrame("a frame longer than its arrays")
