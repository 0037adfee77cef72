"""The bytes between front and engine: what goes in comes out, and nothing else is believed."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from openjev_server.engine.fake import FAKE_INFO
from openjev_server.engine.protocol import (
    BlockResult,
    CanvasBlock,
    EngineError,
    EngineRequest,
    EngineResult,
    NonFiniteLogits,
    Redraw,
    SelfConditioning,
)
from openjev_server.fleet.codec import (
    decode_error,
    decode_info,
    decode_json,
    decode_request,
    decode_result,
    encode_error,
    encode_info,
    encode_request,
    encode_result,
)
from openjev_server.fleet.frames import MAX_FRAME_BYTES, Frame, FrameKind, FrameSplitter, MalformedFrame, encode_frame

INT32 = st.integers(-(2**31), 2**31 - 1)
FLOAT32 = st.floats(width=32)


@st.composite
def blocks(draw: st.DrawFn) -> CanvasBlock:
    replicas, width, slots, candidates = (draw(st.integers(0, top)) for top in (3, 9, 4, 9))
    shapes: list[Any] = [draw(st.integers(0, 9)), (replicas, width), slots, candidates, slots + 1]
    block = CanvasBlock(*(draw(arrays(np.int32, shape, elements=INT32)) for shape in shapes))
    if draw(st.booleans()):
        return block
    shape = (draw(st.integers(0, 3)), replicas, slots)
    uniforms = draw(arrays(np.float32, shape, elements=FLOAT32))
    redraw = Redraw(draw(st.floats(0, 10)), uniforms, draw(arrays(np.int32, shape, elements=INT32)))
    return dataclasses.replace(block, redraw=redraw)


requests = st.builds(
    EngineRequest,
    state=arrays(np.int32, st.integers(0, 50), elements=INT32),
    blocks=st.lists(blocks(), max_size=4).map(tuple),
    steps=st.integers(1, 8),
    self_conditioning=st.sampled_from(SelfConditioning),
    temperatures=st.lists(st.floats(0.1, 5), max_size=3).map(tuple),
)


@st.composite
def block_results(draw: st.DrawFn) -> BlockResult:
    steps, replicas, candidates, slots = (draw(st.integers(0, 3)) for _ in range(4))
    shapes = [(steps, replicas, candidates), (steps, replicas, slots)]
    return BlockResult(*(draw(arrays(np.float32, shape, elements=FLOAT32)) for shape in shapes))


results = st.builds(
    EngineResult,
    blocks=st.lists(block_results(), max_size=4).map(tuple),
    queue_ms=st.floats(0, 1e6),
    model_ms=st.floats(0, 1e6),
)


def same(left: Any, right: Any) -> bool:
    """Whether two values of the protocol are equal, arrays bit by bit."""
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if dataclasses.is_dataclass(left):
        return type(left) is type(right) and all(
            same(getattr(left, f.name), getattr(right, f.name)) for f in dataclasses.fields(left)
        )
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def sent(kind: FrameKind, payload: bytes) -> Frame:
    (frame,) = FrameSplitter().feed(encode_frame(kind, 7, payload))
    assert (frame.kind, frame.number) == (kind, 7)
    return frame


@given(requests)
def test_requests_arrive_as_they_were(request: EngineRequest) -> None:
    assert same(decode_request(sent(FrameKind.REQUEST, encode_request(request)).payload), request)


@given(results)
def test_results_arrive_as_they_were(result: EngineResult) -> None:
    assert same(decode_result(sent(FrameKind.RESULT, encode_result(result)).payload), result)


def test_arrays_are_views_that_may_be_written() -> None:
    block = CanvasBlock(*(np.zeros(shape, np.int32) for shape in (2, (1, 4), 1, 3, 2)))
    frame = sent(FrameKind.REQUEST, encode_request(EngineRequest(np.arange(9, dtype=np.int32), (block,), 2)))
    decoded = decode_request(frame.payload)
    for array in (decoded.state, decoded.blocks[0].canvases):
        assert np.shares_memory(array, np.frombuffer(frame.payload, np.uint8))
        assert array.flags.writeable
        assert array.flags.aligned


def test_arrays_that_are_not_contiguous_are_sent_by_value() -> None:
    wide = np.broadcast_to(np.float32([1, 2]), (2, 3, 2))
    result = EngineResult((BlockResult(wide, wide[:, :, ::-1]),))
    assert same(decode_result(memoryview(encode_result(result))), result)


def test_no_field_of_the_protocol_is_left_behind() -> None:
    """A field that is added to the protocol has to be added to the codec."""
    kinds = (EngineRequest, CanvasBlock, Redraw, EngineResult, BlockResult)
    assert {kind: [field.name for field in dataclasses.fields(kind)] for kind in kinds} == {
        EngineRequest: ["state", "blocks", "steps", "self_conditioning", "temperatures"],
        CanvasBlock: ["suffix", "canvases", "slots", "candidates", "offsets", "redraw"],
        Redraw: ["entropy_bound", "uniforms", "tokens"],
        EngineResult: ["blocks", "queue_ms", "model_ms"],
        BlockResult: ["log_probs", "logsumexp"],
    }


def test_arrays_that_contradict_each_other_are_not_sent() -> None:
    arrays_of = (np.zeros(shape, np.int32) for shape in (2, (1, 4), 1, 3, 3))
    with pytest.raises(MalformedFrame):
        encode_request(EngineRequest(np.zeros(1, np.int32), (CanvasBlock(*arrays_of),), 2))


def test_errors_keep_their_kind() -> None:
    class OutOfPatience(NonFiniteLogits):
        pass

    for error, kind in ((EngineError("a"), EngineError), (NonFiniteLogits("b"), NonFiniteLogits)):
        decoded = decode_error(memoryview(encode_error(error)))
        assert (type(decoded), str(decoded)) == (kind, str(error))
    assert type(decode_error(memoryview(encode_error(OutOfPatience("c"))))) is NonFiniteLogits


def test_infos() -> None:
    assert decode_info(memoryview(encode_info(FAKE_INFO))) == FAKE_INFO


@given(st.lists(st.tuples(st.sampled_from(FrameKind), st.integers(0, 2**64 - 1), st.binary(max_size=40))), st.data())
def test_a_stream_may_come_in_any_pieces(frames: list[tuple[FrameKind, int, bytes]], data: st.DataObject) -> None:
    stream = b"".join(encode_frame(*frame) for frame in frames)
    splitter = FrameSplitter()
    received = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        received += [(frame.kind, frame.number, bytes(frame.payload)) for frame in splitter.feed(stream[:size])]
        stream = stream[size:]
    assert received == frames


@given(st.binary(max_size=200))
def test_noise_is_refused_or_waited_out(noise: bytes) -> None:
    for read in (lambda: list(FrameSplitter().feed(noise)), *(lambda d=d: d(memoryview(noise)) for d in DECODERS)):
        with contextlib.suppress(MalformedFrame):
            read()


DECODERS: tuple[Any, ...] = (decode_request, decode_result, decode_error, decode_info, decode_json)


@given(requests, results, st.data())
def test_a_damaged_payload_is_refused_or_has_the_same_size(
    request: EngineRequest, result: EngineResult, data: st.DataObject
) -> None:
    for encoded, decode in ((encode_request(request), decode_request), (encode_result(result), decode_result)):
        at = data.draw(st.integers(0, len(encoded) - 1))
        damaged = bytearray(encoded)
        damaged[at] ^= data.draw(st.integers(1, 255))
        for payload in (encoded[:-1], encoded + b"\0", encoded[:at], bytes(damaged)):
            try:
                decoded = decode(memoryview(payload))
            except MalformedFrame:
                continue
            assert payload == damaged
            assert isinstance(decoded, EngineRequest | EngineResult)


@pytest.mark.parametrize(
    "head",
    [
        (0).to_bytes(8, "little"),
        (MAX_FRAME_BYTES + 1).to_bytes(8, "little"),
        b"\xff" * 8,
        (16).to_bytes(8, "little") + (99).to_bytes(4, "little") + bytes(12),
        (16).to_bytes(8, "little") + (2).to_bytes(4, "little") + b"x" + bytes(11),
    ],
)
def test_a_head_that_no_peer_sends_is_refused(head: bytes) -> None:
    with pytest.raises(MalformedFrame):
        list(FrameSplitter().feed(head))


def test_what_the_peer_would_refuse_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openjev_server.fleet.frames.MAX_FRAME_BYTES", 30)
    with pytest.raises(MalformedFrame, match="31 bytes"):
        encode_frame(FrameKind.REQUEST, 1, bytes(15))
