from __future__ import annotations

import gzip
import json
import time
import zlib
from typing import Any

import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st
from openjev_server.wire import errors
from openjev_server.wire.body import decode_body
from openjev_server.wire.depth import Excess, excess_of
from openjev_server.wire.encoding import MAX_STREAMS
from openjev_server.wire.errors import WireError
from openjev_server.wire.json import to_json_bytes

LIMIT = 1 << 20
VALUE = {"state": "Grüße, 世界 🙂", "questions": {"q": {"type": "noul"}}}


def squeezed(data: bytes) -> bytes:
    """gzip without the time, which would make a parametrised test another one in every worker."""
    return gzip.compress(data, mtime=0)


PLAIN = json.dumps(VALUE, ensure_ascii=False).encode()


def decode(
    raw: bytes,
    encoding: str | None = None,
    content_type: str | None = "application/json",
    *,
    limit: int = LIMIT,
    max_depth: int = 100,
) -> Any:
    return decode_body(raw, content_encoding=encoding, content_type=content_type, limit=limit, max_depth=max_depth)


def attempt(*args: Any, **options: Any) -> WireError | None:
    """The refusal, if there is one."""
    try:
        decode(*args, **options)
    except WireError as error:
        json.loads(to_json_bytes(error.body))
        return error
    return None


def refusal(*args: Any, **options: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        decode(*args, **options)
    json.loads(to_json_bytes(caught.value.body))
    return caught.value


def raw_deflate(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


def unsized_zstd(data: bytes) -> bytes:
    stream = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True).compressobj()
    return stream.compress(data) + stream.flush()


SKIPPABLE = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        (None, PLAIN),
        ("", PLAIN),
        ("identity", PLAIN),
        ("gzip", squeezed(PLAIN)),
        ("X-GZip", squeezed(PLAIN)),
        ("gzip", squeezed(PLAIN[:9]) + squeezed(b"") + squeezed(PLAIN[9:])),
        ("deflate", zlib.compress(PLAIN)),
        ("deflate", raw_deflate(PLAIN)),
        ("zstd", zstandard.compress(PLAIN)),
        ("ZSTD", unsized_zstd(PLAIN)),
        ("zstd", zstandard.compress(PLAIN[:9]) + SKIPPABLE + unsized_zstd(PLAIN[9:])),
        ("gzip, zstd", zstandard.compress(squeezed(PLAIN))),
        ("identity,deflate , gzip", squeezed(zlib.compress(PLAIN))),
    ],
)
def test_codings(encoding: str | None, data: bytes) -> None:
    assert decode(data, encoding) == VALUE


@pytest.mark.parametrize("encoding", ["br", "gzip, br", "compress", "gzip;q=1", "x" * 1000, ",".join(["gzip"] * 5)])
def test_unknown_codings(encoding: str) -> None:
    error = refusal(PLAIN, encoding)
    assert error.status == 415
    assert isinstance(error.detail, str)
    assert error.headers == {"Accept-Encoding": "zstd, gzip, deflate, identity"}


@pytest.mark.parametrize(
    ("encoding", "good"),
    [
        ("gzip", squeezed(PLAIN)),
        ("deflate", zlib.compress(PLAIN)),
        ("deflate", raw_deflate(PLAIN)),
        ("zstd", zstandard.compress(PLAIN)),
        ("zstd", unsized_zstd(PLAIN)),
    ],
)
def test_broken_streams(encoding: str, good: bytes) -> None:
    for bad in (PLAIN, good[:-1], good[: len(good) // 2], good[:1], good + b"trailing"):
        error = refusal(bad, encoding)
        assert error.status == 400
        assert error.detail["error_type"] == "api_usage_error"


def test_the_cap_counts_before_and_after_decompression() -> None:
    body = json.dumps("x" * 998).encode()
    assert len(body) == 1000
    for encoding, data in [
        (None, body),
        ("gzip", squeezed(body)),
        ("deflate", zlib.compress(body)),
        ("zstd", zstandard.compress(body)),
        ("zstd", unsized_zstd(body)),
    ]:
        assert decode(data, encoding, limit=1000) == "x" * 998
        error = refusal(data, encoding, limit=999)
        assert error.status == 413
        assert isinstance(error.detail, str)
        assert "999" in error.detail
    incompressible = zlib.compress(PLAIN, level=0)
    assert refusal(incompressible, "deflate", limit=len(incompressible) - 1).status == 413


def zstd_run_length_bomb(blocks: int) -> bytes:
    """A frame of run-length blocks, 128 KiB each from 4 bytes."""
    block = (131072 << 3 | 1 << 1).to_bytes(3, "little") + b"0"
    last = (131072 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"0"
    return b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x38" + block * (blocks - 1) + last


@pytest.mark.parametrize(
    ("encoding", "bomb"),
    [
        ("gzip", squeezed(bytes(1 << 28))),
        ("deflate", zlib.compress(bytes(1 << 28))),
        ("zstd", zstandard.compress(bytes(1 << 28))),
        ("zstd", zstd_run_length_bomb(100_000)),
        ("gzip, gzip", squeezed(squeezed(bytes(1 << 28)))),
    ],
)
def test_bombs(encoding: str, bomb: bytes) -> None:
    started = time.process_time()
    assert refusal(bomb, encoding).status == 413
    assert time.process_time() - started < 5


def test_the_run_length_bomb_is_a_valid_frame() -> None:
    assert len(zstandard.ZstdDecompressor().decompressobj().decompress(zstd_run_length_bomb(3))) == 3 * 131072


@pytest.mark.parametrize(("encoding", "empty"), [("gzip", squeezed(b"")), ("zstd", zstandard.compress(b""))])
def test_many_empty_streams(encoding: str, empty: bytes) -> None:
    started = time.process_time()
    assert refusal(empty * 1_000_000, encoding, limit=1 << 25).status == 400
    assert time.process_time() - started < 5
    assert refusal(empty * MAX_STREAMS, encoding).detail == errors.missing_body().detail


def test_empty() -> None:
    for encoding in (None, "gzip", "zstd", "deflate"):
        for content_type in ("application/json", None, "text/plain", "application/octet-stream"):
            assert refusal(b"", encoding, content_type).detail == errors.missing_body().detail
    assert decode(b"null") is None


@pytest.mark.parametrize(
    ("raw", "position", "reason"),
    [
        (b'{"a":', 5, "Expecting value"),
        (b" ", 1, "Expecting value"),
        (b"{} {}", 3, "Extra data"),
        (b"{'a': 1}", 1, "Expecting property name enclosed in double quotes"),
        (b'{"a": "\n"}', 7, "Invalid control character at"),
        (b'"\xff"', 1, "Invalid UTF-8"),
        (b'"\xed\xa0\x80"', 1, "Invalid UTF-8"),
        (b'{"NaN": [1, NaN]}', 12, "NaN and Infinity are not JSON"),
        (b'["-Infinity \\" -Infinity", -Infinity]', 27, "NaN and Infinity are not JSON"),
        (b"[Infinity]", 1, "NaN and Infinity are not JSON"),
        (b"[1.0, 1e999]", 6, "Number out of range"),
        (b"[-1" + b"0" * 400 + b".0]", 1, "Number out of range"),
        (b'["' + b"1" * 5000 + b'", 12, -' + b"1" * 5000 + b"]", 5009, "Number out of range"),
        ("é[".encode(), 0, "Expecting value"),
        ('"é" x'.encode(), 4, "Extra data"),
    ],
)
def test_what_is_not_json(raw: bytes, position: int, reason: str) -> None:
    error = refusal(raw)
    assert error.status == 422
    assert error.detail == errors.invalid_json(position, reason).detail


def test_utf16_is_refused() -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-32"):
        assert refusal(json.dumps(VALUE).encode(encoding)).detail[0]["type"] == "json_invalid"


def test_what_is_json_all_the_same() -> None:
    assert decode(b"\xef\xbb\xbf" + PLAIN) == VALUE
    assert decode(b'{"a": 1, "b": 2, "a": 3}') == {"a": 3, "b": 2}
    assert decode(b'"\\ud800"') == "\ud800"
    assert decode(b"[1e308, 1e-999, " + b"9" * 4300 + b"]") == [1e308, 0.0, int("9" * 4300)]
    assert decode(json.dumps("x" * 10_000_000).encode(), limit=1 << 25) == "x" * 10_000_000


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/vnd.api+json",
        "text/json",
        "text/plain; charset=utf-8",
        "nonsense",
        "",
        None,
    ],
)
def test_content_types_that_are_read(content_type: str | None) -> None:
    assert decode(PLAIN, content_type=content_type) == VALUE


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "application/xml", "text/html"])
def test_other_content_types_are_strings(content_type: str) -> None:
    assert refusal(PLAIN, content_type=content_type).detail == errors.not_an_object(PLAIN.decode()).detail
    assert refusal(b"\xff", content_type=content_type).detail[0]["input"] == "\ufffd"
    assert len(to_json_bytes(refusal(b"x" * LIMIT, content_type=content_type).body)) < 1000


def test_text_that_is_no_json_is_a_string() -> None:
    assert refusal(b"a=1", content_type="text/plain").detail == errors.not_an_object("a=1").detail


def nested(depth: int) -> bytes:
    return b'{"a":[' * (depth // 2) + b"[" * (depth % 2) + b"]" * (depth % 2) + b"]}" * (depth // 2)


def test_depth() -> None:
    too_deep = {
        "detail": [
            {
                "type": "json_invalid",
                "loc": ["body", 0],
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": "nesting too deep"},
            }
        ]
    }
    for depth in (99, 100):
        assert decode(nested(depth)) is not None
    for depth in (101, 102, 1000, 100_000):
        error = refusal(nested(depth))
        assert (error.status, error.body) == (422, too_deep)
    shallow = ["[[[" * 1000, '{"\\' * 1000, [[]] * 1000, {"]": "\\\\"}]
    assert decode(json.dumps(shallow).encode(), max_depth=3) == shallow
    assert refusal(json.dumps(shallow).encode(), max_depth=2).body == too_deep
    assert refusal(nested(100_000), max_depth=10**6).body == too_deep


@pytest.mark.parametrize(
    "bomb",
    [
        b"[" * 10_000_000,
        b'{"a":' * 2_000_000,
        b'"[' * 5_000_000,
        b'"' + b"\\" * 9_999_999,
        b'["",' * 2_500_000,
        b"[1." + b"1" * 10_000_000 + b"]",
        b"[" + b"1" * 10_000_000 + b"]",
        b"[" + b"1" * 4000 + (b"," + b"1" * 4000) * 2500 + b",NaN]",
        b"[" + b'"a",1.5,' * 1_000_000 + b"1e999]",
        b'"' + b"\\u0041" * 1_600_000,
    ],
    ids=lambda b: repr(b[:8]),
)
def test_ten_megabytes_of_malice(bomb: bytes) -> None:
    started = time.process_time()
    error = attempt(bomb, limit=1 << 25)
    assert error is None or error.status in {413, 422}
    assert time.process_time() - started < 5


def depth_of(value: Any) -> int:
    if isinstance(value, dict | list):
        return 1 + max(map(depth_of, value.values() if isinstance(value, dict) else value), default=0)
    return 0


STRINGS = st.text(alphabet=st.sampled_from('[]{}"\\, a\n'), max_size=12) | st.text(max_size=4)
VALUES = st.recursive(
    st.none() | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(STRINGS, inner, max_size=3),
    max_leaves=12,
)


@given(VALUES)
def test_depth_is_exact_for_json(value: Any) -> None:
    data, depth = json.dumps(value).encode(), depth_of(value)
    assert excess_of(data, max_depth=depth) is None
    assert depth == 0 or excess_of(data, max_depth=depth - 1) is Excess.DEPTH


def values_in(value: Any) -> int:
    """Arrays, objects, and the commas between entries."""
    if isinstance(value, dict | list):
        inner = list(value.values() if isinstance(value, dict) else value)
        return max(1, len(inner)) + sum(map(values_in, inner))
    return 0


@given(VALUES)
def test_the_number_of_values_is_exact_for_json(value: Any) -> None:
    data, values = json.dumps(value).encode(), values_in(value)
    assert excess_of(data, max_depth=100, max_values=values) is None
    assert values == 0 or excess_of(data, max_depth=100, max_values=values - 1) is Excess.VALUES


@pytest.mark.parametrize("size", [2**20 - 1, 2**20, 2**20 + 1, 2**20 + 2])
def test_escapes_across_blocks(size: int) -> None:
    for tail in ('\\"[', '\\\\", ["', "\\" * 7 + '",'):
        text = "x" * (size - 2 - len(tail)) + tail
        data = json.dumps([text, [1, 2]]).encode()
        assert excess_of(data, max_depth=2, max_values=4) is None
        assert excess_of(data, max_depth=1) is Excess.DEPTH
        assert excess_of(data, max_depth=2, max_values=3) is Excess.VALUES


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", None])
def test_too_many_values(content_type: str | None) -> None:
    data = b'{"state":[' + b",".join([b"[]"] * 131_072) + b"]}"
    error = refusal(data, content_type=content_type, limit=1 << 25)
    assert (error.status, error.detail) == (413, "Request body too large. Must hold at most 131072 JSON values.")
    assert decode(b'{"state":[' + b",".join([b"[]"] * 65_000) + b"]}", content_type=content_type)
    assert decode(json.dumps({"state": "[,]" * 200_000}).encode(), content_type=content_type)


def test_depth_across_blocks() -> None:
    # More structure than one block of the scan, with a string that spans the border.
    filler = b'["[[[",[]]'
    data = b"[" + b",".join([filler] * 300_000) + b"]"
    assert excess_of(data, max_depth=3, max_values=10**9) is None
    assert excess_of(data, max_depth=2, max_values=10**9) is Excess.DEPTH


@given(
    st.binary() | st.text().map(lambda t: t.encode(errors="replace")) | VALUES.map(lambda v: json.dumps(v).encode()),
    st.sampled_from([None, "gzip", "deflate", "zstd", "identity", "gzip,zstd"]) | st.text(max_size=10),
    st.sampled_from([None, "application/json", "text/plain", "multipart/form-data; boundary=b"]) | st.text(max_size=20),
)
@example(b"--b\r\n", None, "multipart/form-data; boundary=b")
def test_only_wire_errors_escape(raw: bytes, encoding: str | None, content_type: str | None) -> None:
    error = attempt(raw, encoding, content_type, limit=4096, max_depth=8)
    assert error is None or 400 <= error.status < 500


GOOD = {"gzip": squeezed(PLAIN), "deflate": zlib.compress(PLAIN), "zstd": unsized_zstd(PLAIN)}


@given(st.sampled_from(sorted(GOOD)), st.data())
def test_a_flipped_byte_never_escapes(encoding: str, data: st.DataObject) -> None:
    raw = bytearray(GOOD[encoding])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    error = attempt(bytes(raw), encoding, limit=4096)
    assert error is None or 400 <= error.status < 500
