"""JSON out: compact, always valid, always UTF-8."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

__all__ = ["to_json_bytes"]

_EXPONENT = re.compile(r"e-\d")


def to_json_bytes(value: Any) -> bytes:
    """Compact UTF-8 JSON of a JSON value.

    A lone surrogate has no UTF-8 form and is escaped, so a client reads back the very code points it sent.
    Numbers never use a negative exponent (0.00001, not 1e-05).

    Raises ValueError for NaN and infinities.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # The literal comes first in the pattern: then the search runs at the speed of memory.
    if any(text[match.start() - 1].isdigit() for match in _EXPONENT.finditer(text)):
        text = _write(value)
    # Only lone surrogates have no UTF-8 form, and this handler spells them as JSON does.
    return text.encode(errors="backslashreplace")


def _write(value: Any) -> str:
    # Loops, not comprehensions: one frame a level, so that the deepest body a server may admit fits on the stack.
    parts = []
    match value:
        case dict():
            for key, item in value.items():
                parts.append(f"{_scalar(key)}:{_write(item)}")
            return "{" + ",".join(parts) + "}"
        case list() | tuple():
            for item in value:
                parts.append(_write(item))  # noqa: PERF401
            return "[" + ",".join(parts) + "]"
        case float() if "e-" in (text := repr(value)):
            return format(Decimal(text), "f")
        case _:
            return _scalar(value)


def _scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
