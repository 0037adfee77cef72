"""The payloads between front and engine process: plain arrays with their shapes, no pickle.

A request or result is 64-bit counts and then the arrays, one after the other, so that reading one is slicing. What is
rare is JSON or text. All numbers are little-endian.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import asdict, replace
from typing import Any, Generic, TypeVar

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
from openjev_server.fleet.frames import MAX_FRAME_BYTES, MalformedFrame

__all__ = [
    "decode_error",
    "decode_info",
    "decode_json",
    "decode_request",
    "decode_result",
    "decode_text",
    "encode_error",
    "encode_info",
    "encode_json",
    "encode_request",
    "encode_result",
]

TIMES = struct.Struct("<dd")
INT = np.dtype("<i4")
FLOAT = np.dtype("<f4")
COUNT = np.dtype("<i8")
NUMBER = np.dtype("<f8")

CONDITIONING = tuple(SelfConditioning)
ERRORS: dict[str, type[EngineError]] = {kind.__name__: kind for kind in (EngineError, NonFiniteLogits)}

Scalar = TypeVar("Scalar", bound=np.generic)


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
    steps, conditioning, temperatures, state_length, blocks = reader.counts(1, 5)[0]
    if conditioning >= len(CONDITIONING):
        raise MalformedFrame(f"unknown self-conditioning {conditioning}")
    shapes = reader.counts(blocks, 6)
    numbers = reader.array(NUMBER, temperatures + sum(shape[5] > 0 for shape in shapes)).tolist()
    bounds = iter(numbers[temperatures:])
    words = _Words(reader.rest(INT))
    state = words.take(state_length)
    decoded = []
    for suffix, replicas, width, slots, candidates, redrawn in shapes:
        block = CanvasBlock(
            words.take(suffix),
            words.take(replicas * width).reshape(replicas, width),
            words.take(slots),
            words.take(candidates),
            words.take(slots + 1),
        )
        if redrawn:
            shape = (redrawn - 1, replicas, slots)
            tokens, uniforms = (words.take(math.prod(shape)).reshape(shape) for _ in range(2))
            block = replace(block, redraw=Redraw(next(bounds), uniforms.view(FLOAT), tokens))
        decoded.append(block)
    words.end()
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
    ((blocks,),) = reader.counts(1, 1)
    shapes = reader.counts(blocks, 4)
    words = _Words(reader.rest(FLOAT))
    decoded = []
    for steps, replicas, candidates, slots in shapes:
        log_probs = words.take(steps * replicas * candidates).reshape(steps, replicas, candidates)
        logsumexp = words.take(steps * replicas * slots).reshape(steps, replicas, slots)
        decoded.append(BlockResult(log_probs, logsumexp))
    words.end()
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
    """Takes rows of numbers off the front of a payload, never beyond its end."""

    def __init__(self, payload: memoryview) -> None:
        self._payload = payload

    def array(self, dtype: np.dtype[Scalar], length: int) -> NDArray[Scalar]:
        stop = length * dtype.itemsize
        if stop > len(self._payload):
            raise MalformedFrame("arrays longer than their frame")
        values = np.frombuffer(self._payload[:stop], dtype)
        self._payload = self._payload[stop:]
        return values

    def counts(self, rows: int, columns: int) -> list[list[int]]:
        values = self.array(COUNT, rows * columns)
        if rows and (values.min() < 0 or values.max() > MAX_FRAME_BYTES):
            raise MalformedFrame("a length that no frame can have")
        counts: list[list[int]] = values.reshape(rows, columns).tolist()
        return counts

    def rest(self, dtype: np.dtype[Scalar]) -> NDArray[Scalar]:
        if len(self._payload) % dtype.itemsize:
            raise MalformedFrame("a broken number")
        return self.array(dtype, len(self._payload) // dtype.itemsize)


class _Words(Generic[Scalar]):
    """Cuts one array into many, as views: slicing costs a fifth of what a new array on the buffer does."""

    def __init__(self, words: NDArray[Scalar]) -> None:
        self._words = words
        self._at = 0

    def take(self, length: int) -> NDArray[Scalar]:
        start, self._at = self._at, self._at + length
        if self._at > len(self._words):
            raise MalformedFrame("arrays longer than their frame")
        return self._words[start : self._at]

    def end(self) -> None:
        if self._at != len(self._words):
            raise MalformedFrame("a frame longer than its arrays")
