"""Content codings of a request body, with a cap on what comes out, so that a bomb costs no more than the cap."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

import zstandard

from openjev_server.wire import errors

__all__ = ["MAX_CODINGS", "MAX_STREAMS", "decompress"]

MAX_CODINGS = 4
"""Codings that may be stacked; clients use one."""
MAX_STREAMS = 10_000
"""Frames (zstd) or members (gzip) that one body may be a sequence of; clients write one."""

_CHUNK = 512
"""Bytes of input between two looks at the size of the output. A zstd block of 4 bytes can yield 128 KiB, so this
bounds the overshoot to 16 MiB."""
_MIN_WINDOW = 8 << 20
_GZIP_WBITS, _ZLIB_WBITS, _RAW_WBITS = 31, 15, -15


class _Stream(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


def decompress(data: bytes, content_encoding: str | None, limit: int) -> bytes:
    """Undoes the codings that the header lists, last one first. An empty body stays empty.

    Raises `WireError`: 415 for an unknown coding or too many, 413 when a stage yields more than `limit` bytes,
    400 for a corrupt or truncated stream.
    """
    codings = [coding for part in (content_encoding or "").split(",") if (coding := part.strip().lower())]
    if len(codings) > MAX_CODINGS:
        raise errors.unsupported_encoding(f"more than {MAX_CODINGS} codings")
    for coding in reversed(codings):
        match coding:
            case "identity":
                continue
            case "zstd":
                data = _zstd(data, limit)
            case "gzip" | "x-gzip":
                data = _gzip(data, limit)
            case "deflate":
                data = _deflate(data, limit)
            case _:
                raise errors.unsupported_encoding(coding[:100])
    return data


def _zstd(data: bytes, limit: int) -> bytes:
    window = 1 << (max(limit, _MIN_WINDOW) - 1).bit_length()
    try:
        if data and zstandard.frame_content_size(data) > limit:
            raise errors.body_too_large(limit)
        decompressor = zstandard.ZstdDecompressor(max_window_size=window)
        return _read(data, decompressor.decompressobj, limit)
    except (zstandard.ZstdError, _CorruptError):
        raise _corrupt("zstd") from None


def _gzip(data: bytes, limit: int) -> bytes:
    try:
        return _read(data, lambda: zlib.decompressobj(_GZIP_WBITS), limit)
    except (zlib.error, _CorruptError):
        raise _corrupt("gzip") from None


def _deflate(data: bytes, limit: int) -> bytes:
    """The zlib format that RFC 9110 asks for, or the raw stream that some clients send."""
    is_zlib = len(data) >= 2 and data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    wbits = _ZLIB_WBITS if is_zlib else _RAW_WBITS
    try:
        return _read(data, lambda: zlib.decompressobj(wbits), limit)
    except (zlib.error, _CorruptError):
        raise _corrupt("deflate") from None


class _CorruptError(Exception):
    pass


def _corrupt(coding: str) -> errors.WireError:
    return errors.malformed_body(f"The request body is not valid {coding}.")


def _read(data: bytes, open_stream: Callable[[], _Stream], limit: int) -> bytes:
    """The contents of all streams in `data`, one after the other."""
    out = bytearray()
    position = streams = 0
    while position < len(data):
        streams += 1
        if streams > MAX_STREAMS:
            raise _CorruptError
        stream = open_stream()
        while not stream.eof:
            chunk = data[position : position + _CHUNK]
            if not chunk:
                raise _CorruptError  # the stream is cut short
            position += len(chunk)
            out += stream.decompress(chunk)
            if len(out) > limit:
                raise errors.body_too_large(limit)
        position -= len(stream.unused_data)
    return bytes(out)
