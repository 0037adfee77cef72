"""Request ids: `req_` and 32 hex digits of a version 7 UUID (RFC 9562 section 5.7)."""

from __future__ import annotations

import secrets
import time

__all__ = ["new_request_id"]


def new_request_id() -> str:
    """A fresh id. Ids of later milliseconds sort after earlier ones; the rest (74 bits) is random."""
    milliseconds = time.time_ns() // 1_000_000 & (1 << 48) - 1
    random = secrets.randbits(74)
    value = milliseconds << 80 | 0x7 << 76 | random >> 62 << 64 | 0b10 << 62 | random & (1 << 62) - 1
    return f"req_{value:032x}"
