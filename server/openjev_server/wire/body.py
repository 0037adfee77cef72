"""HTTP body bytes in, a JSON value out, or the exact refusal.

- `Content-Encoding`: zstd, gzip, deflate, identity, stacked in the order the header lists them; both sides of a
  decompression are capped.
- `Content-Type`: JSON (any `*/json` or `*+json`); `text/plain` or none when the body is JSON all the same;
  `multipart/form-data` with a JSON part named `request`; anything else is read as a string, which is no request.
- JSON as RFC 8259 has it: UTF-8 (a byte order mark is skipped), no NaN, no Infinity, no number beyond a double's
  range or beyond 4300 digits. Of equal keys in one object the last one counts. Lone surrogates written as escapes
  are kept.
"""

from __future__ import annotations

import json
import re
from email.message import Message
from http import HTTPStatus
from typing import Any

from openjev_server.wire import errors
from openjev_server.wire.depth import MAX_VALUES, Excess, excess_of
from openjev_server.wire.echo import echo_inputs
from openjev_server.wire.encoding import decompress
from openjev_server.wire.multipart import read_parts

__all__ = ["decode_body", "decode_json"]

_STRING = r'"(?:[^"\\]++|\\.)*+"?'
_HUGE_INTEGER = re.compile(_STRING + r"|(?P<number>-?\d{4301,})|\d++", re.DOTALL)


def decode_body(
    raw: bytes,
    *,
    content_encoding: str | None,
    content_type: str | None,
    limit: int,
    max_depth: int,
    max_values: int = MAX_VALUES,
) -> Any:
    """The JSON value of a request body; `limit` is in bytes, before and after decompression.

    Raises `WireError`: 413 too large or too many values, 415 unknown coding, 400 broken stream or multipart, 422
    not JSON.
    """
    if len(raw) > limit:
        raise errors.body_too_large(limit)
    data = decompress(raw, content_encoding, limit)
    message = Message()
    message["Content-Type"] = content_type or "text/plain"
    kind = message.get_content_type()
    if kind == "multipart/form-data":
        return _decode_multipart(data, content_type or "", max_depth, max_values)
    if kind.endswith(("/json", "+json")):
        return decode_json(data, max_depth, max_values)
    if not data:
        raise errors.missing_body()
    if kind == "text/plain":
        try:
            return decode_json(data, max_depth, max_values)
        except errors.WireError as error:
            if error.status != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
    raise errors.validation(echo_inputs(errors.not_an_object(data.decode(errors="replace")).detail))


def decode_json(data: bytes, max_depth: int, max_values: int = MAX_VALUES) -> Any:
    """Strict JSON of at most `max_depth` levels of nesting (422) and `max_values` values (413). Raises `WireError`."""
    if not data:
        raise errors.missing_body()
    match excess_of(data, max_depth=max_depth, max_values=max_values):
        case Excess.DEPTH:
            raise errors.nesting_too_deep()
        case Excess.VALUES:
            raise errors.too_many_values(max_values)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise errors.invalid_json(error.start, "Invalid UTF-8") from None
    try:
        return json.loads(text, parse_float=_finite, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise errors.invalid_json(error.pos, error.msg) from None
    except _NotFiniteError as error:
        reason = "Number out of range" if error.literal[-1].isdigit() else "NaN and Infinity are not JSON"
        raise errors.invalid_json(_position(text, error.literal), reason) from None
    except RecursionError:
        raise errors.nesting_too_deep() from None
    except ValueError:  # an integer of more digits than int() takes
        found = next((m for m in _HUGE_INTEGER.finditer(text) if m["number"]), None)
        raise errors.invalid_json(found.start() if found else 0, "Number out of range") from None


class _NotFiniteError(Exception):
    def __init__(self, literal: str) -> None:
        super().__init__(literal)
        self.literal = literal


def _finite(literal: str) -> float:
    value = float(literal)
    if value - value != 0:
        raise _NotFiniteError(literal)
    return value


def _refuse(literal: str) -> float:
    raise _NotFiniteError(literal)


def _position(text: str, literal: str) -> int:
    """Where `literal` first stands outside a string, in characters."""
    tokens = re.compile(f"{_STRING}|(?P<literal>{re.escape(literal)})", re.DOTALL)
    return next((m.start() for m in tokens.finditer(text) if m["literal"]), 0)


def _decode_multipart(data: bytes, content_type: str, max_depth: int, max_values: int) -> Any:
    parts = read_parts(data, content_type)
    if "request" not in parts:
        entry = {"type": "missing", "loc": ["body", "request"], "msg": "Field required", "input": None}
        raise errors.validation([entry])
    body = decode_json(parts["request"], max_depth, max_values)
    if len(parts) > 1 and isinstance(body, dict):
        raise errors.assets_not_supported()
    return body
