"""JSON out: compact, always valid, always UTF-8."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

__all__ = ["to_json_bytes"]


def to_json_bytes(value: Any) -> bytes:
    """Compact UTF-8 JSON of a JSON value.

    A lone surrogate has no UTF-8 form and is escaped, so a client reads back the very code points it sent.
    Numbers never use a negative exponent (0.00001, not 1e-05).

    Raises ValueError for NaN and infinities.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if "e-" in text:
        text = _write(value)
    # Only lone surrogates have no UTF-8 form, and this handler spells them as JSON does.
    return text.encode(errors="backslashreplace")


def _write(value: Any) -> str:
    match value:
        case dict():
            return "{" + ",".join(f"{_scalar(str(k))}:{_write(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_write, value)) + "]"
        case float() if "e-" in (text := repr(value)):
            return format(Decimal(text), "f")
        case _:
            return _scalar(value)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
