"""The parts of a `multipart/form-data` body, by name."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from openjev_server.wire import errors

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

__all__ = ["MAX_PARTS", "read_parts"]

MAX_PARTS = 1000

_SILENT = logging.Logger(__name__, logging.CRITICAL + 1)
"""The parser warns of what it also raises, and who asked is told."""


def read_parts(data: bytes, content_type: str) -> dict[str, bytes]:
    """Part contents by part name, of equal names the last. Raises `WireError` (400) when it is no such body."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if not boundary:
        raise errors.malformed_body("Invalid multipart body: no boundary.")
    collector = _Collector()
    try:
        parser = MultipartParser(boundary, collector.callbacks())
        parser.logger = _SILENT
        parser.write(data)
        parser.finalize()
    except (FormParserError, ValueError):
        raise errors.malformed_body("Invalid multipart body.") from None
    if not collector.ended:
        raise errors.malformed_body("Invalid multipart body: it ends early.")
    return collector.parts


class _Collector:
    """Gathers what the parser reports: header names and values in pieces, then data in pieces."""

    def __init__(self) -> None:
        self.parts: dict[str, bytes] = {}
        self.ended = False
        self._count = 0
        self._header, self._value, self._data = bytearray(), bytearray(), bytearray()
        self._headers: defaultdict[bytes, bytes] = defaultdict(bytes)

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._end_header,
            "on_part_data": self._part_data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._count += 1
        if self._count > MAX_PARTS:
            raise errors.malformed_body(f"Invalid multipart body: more than {MAX_PARTS} parts.")
        self._headers.clear()
        self._data.clear()

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]

    def _end_header(self) -> None:
        self._headers[bytes(self._header).lower()] = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _end(self) -> None:
        _, options = parse_options_header(self._headers[b"content-disposition"])
        name = options.get(b"name", b"").decode(errors="replace")
        self.parts[name] = bytes(self._data)

    def _finish(self) -> None:
        self.ended = True
