"""Content codings of a request body, with a cap on what comes out, so that a bomb costs no more than the cap."""

from __future__ import annotations

import zlib

import zstandard

from openjev_server.wire import errors

__all__ = ["MAX_CODINGS", "decompress"]

MAX_CODINGS = 4
"""Codings that may be stacked; clients use one."""

_ZSTD_CHUNK = 4096
_MIN_WINDOW = 8 << 20
_GZIP_WBITS, _ZLIB_WBITS, _RAW_WBITS = 31, 15, -15


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


def _corrupt(coding: str) -> errors.WireError:
    return errors.malformed_body(f"The request body is not valid {coding}.")


def _zstd(data: bytes, limit: int) -> bytes:
    """Any number of frames. Output is checked after every few KiB of input, which yield at most some MiB."""
    window = 1 << (max(limit, _MIN_WINDOW) - 1).bit_length()
    decompressor = zstandard.ZstdDecompressor(max_window_size=window)
    out = bytearray()
    rest = memoryview(data)
    try:
        while rest:
            if zstandard.frame_content_size(bytes(rest[:18])) > limit:
                raise errors.body_too_large(limit)
            frame = decompressor.decompressobj()
            while rest and not frame.eof:
                chunk, rest = rest[:_ZSTD_CHUNK], rest[_ZSTD_CHUNK:]
                out += frame.decompress(chunk)
                if len(out) > limit:
                    raise errors.body_too_large(limit)
                if frame.eof:
                    rest = memoryview(data)[len(data) - len(rest) - len(frame.unused_data) :]
            if not frame.eof:
                raise _corrupt("zstd")
    except zstandard.ZstdError:
        raise _corrupt("zstd") from None
    return bytes(out)


def _gzip(data: bytes, limit: int) -> bytes:
    """Any number of members."""
    out = bytearray()
    while data:
        member, data = _inflate(data, _GZIP_WBITS, limit - len(out), limit, "gzip")
        out += member
    return bytes(out)


def _deflate(data: bytes, limit: int) -> bytes:
    """The zlib format that RFC 9110 asks for, or the raw stream that some clients send."""
    if not data:
        return data
    is_zlib = len(data) >= 2 and data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
    out, rest = _inflate(data, _ZLIB_WBITS if is_zlib else _RAW_WBITS, limit, limit, "deflate")
    if rest:
        raise _corrupt("deflate")
    return out


def _inflate(data: bytes, wbits: int, room: int, limit: int, coding: str) -> tuple[bytes, bytes]:
    """One stream of at most `room` bytes, and what follows it."""
    stream = zlib.decompressobj(wbits)
    try:
        out = stream.decompress(data, room + 1)
    except zlib.error:
        raise _corrupt(coding) from None
    if len(out) > room:
        raise errors.body_too_large(limit)
    if not stream.eof:
        raise _corrupt(coding)
    return out, stream.unused_data
