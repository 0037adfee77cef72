from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.wire import errors
from openjev_server.wire.body import decode_body
from openjev_server.wire.errors import WireError
from openjev_server.wire.multipart import MAX_PARTS
from openjev_server.wire.parse import parse_request

REQUEST = {"state": "s", "model": "jev-latest", "questions": {"q": {"type": "noul", "instructions": "x"}}}
CONTENT_TYPE = 'multipart/form-data; boundary="da04"'


def part(name: str, data: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = f'--da04\r\nContent-Disposition: form-data; name="{name}"{more}\r\nContent-Type: {kind}\r\n\r\n'
    return head.encode() + data + b"\r\n"


def send(*parts: bytes, end: bytes = b"--da04--\r\n", content_type: str = CONTENT_TYPE) -> Any:
    raw = b"".join(parts) + end
    body = decode_body(raw, content_encoding=None, content_type=content_type, limit=1 << 20, max_depth=50)
    return parse_request(body, unknown_fields="reject")


def refusal(*parts: bytes, **options: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        send(*parts, **options)
    return caught.value


IMAGE = part("asset-0", b"\x89PNG\r\n\x1a\n\x00--da0", "image/png", '; filename="asset-0"')
ASSETS = {"<image:eb>": {"type": "image", "part": "asset-0"}}


def test_images_are_refused_politely() -> None:
    expected = errors.assets_not_supported()
    for parts in (
        (part("request", json.dumps(REQUEST | {"assets": ASSETS}).encode()), IMAGE),
        (IMAGE, part("request", json.dumps(REQUEST | {"assets": ASSETS}).encode())),
        (part("request", json.dumps(REQUEST | {"assets": ASSETS}).encode()),),
        (part("request", json.dumps(REQUEST).encode()), IMAGE),
    ):
        error = refusal(*parts)
        assert (error.status, error.body) == (400, expected.body)
    assert "images" in expected.detail["message"]


def test_a_lone_request_is_answered() -> None:
    assert send(part("request", json.dumps(REQUEST).encode())).state == "s"


def test_what_is_no_such_body() -> None:
    request = part("request", json.dumps(REQUEST).encode())
    for error in (
        refusal(request, end=b""),
        refusal(request, content_type="multipart/form-data"),
        refusal(request, content_type="multipart/form-data; boundary="),
        refusal(request, content_type="multipart/form-data; boundary=other"),
        refusal(b"nonsense"),
        refusal(b"", end=b""),
        refusal(b"--da04\r\nno header\r\n\r\nx\r\n"),
        refusal(*[part("x", b"")] * (MAX_PARTS + 1)),
    ):
        assert error.status == 400
        assert "multipart" in error.detail["message"]


def test_the_request_part() -> None:
    assert refusal(IMAGE).detail == [
        {"type": "missing", "loc": ["body", "request"], "msg": "Field required", "input": None}
    ]
    assert refusal(part("request", b'{"a":')).detail == errors.invalid_json(5, "Expecting value").detail
    assert refusal(part("request", b"")).detail == errors.missing_body().detail
    assert refusal(part("request", b"[" * 1000)).detail == errors.nesting_too_deep().detail
    assert refusal(part("request", b"[1]"), IMAGE).detail == errors.not_an_object([1]).detail


@given(st.lists(st.sampled_from([b"--da04", b"\r\n", b"--", b"Content-Disposition", b": ", b"name=request", b"{}"])))
def test_only_wire_errors_escape(pieces: list[bytes]) -> None:
    assert refusal(*pieces).status in {400, 422}
