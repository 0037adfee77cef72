"""How deep a JSON text nests, found without parsing it, so that a bomb never reaches a recursive parser."""

from __future__ import annotations

import numpy as np

__all__ = ["is_deeper"]

_BLOCK = 1 << 20
_QUOTE = ord('"')
_STRUCTURE = b'[]{}"'
_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
_STEP = np.zeros(256, dtype=np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1


def is_deeper(data: bytes, limit: int) -> bool:
    """Whether arrays and objects nest more than `limit` deep. Brackets inside strings do not count.

    Exact for well-formed JSON; for anything else it may err either way, and the parser refuses that text anyhow.
    Linear time, a few MiB of working memory: 10 MB take some tens of milliseconds.
    """
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    if b"\\" in data:
        # Backslashes pair up from the left of a run, so what is left after removing pairs escapes the next character.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    structure = np.frombuffer(data.translate(None, _OTHER_BYTES), dtype=np.uint8)
    depth = 0
    quotes = np.uint8(0)
    for start in range(0, len(structure), _BLOCK):
        block = structure[start : start + _BLOCK]
        # Only the parity of the count matters, so wrapping at 256 is harmless.
        count = np.cumsum(block == _QUOTE, dtype=np.uint8) + quotes
        depths = np.cumsum(_STEP[block] * (count % 2 == 0), dtype=np.int32) + depth
        if depths.max() > limit:
            return True
        depth, quotes = int(depths[-1]), count[-1]
    return False
