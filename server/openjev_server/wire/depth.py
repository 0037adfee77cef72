"""How deep a JSON text nests and how much it holds, found without parsing it: a bomb never reaches a recursive parser,
and a text of millions of values never one that keeps the interpreter to itself until it is done."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import numpy as np

__all__ = ["MAX_VALUES", "Excess", "excess_of"]

MAX_VALUES = 131_072
"""Twice the tokens of the largest request; parsing as many keys takes some tenths of a second."""

_BLOCK = 1 << 20
_QUOTE = ord('"')
_COMMA = ord(",")
_BACKSLASH = ord("\\")
_STRUCTURE = b'[]{}",'
_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in _STRUCTURE)
_STEP = np.zeros(256, dtype=np.int8)
_STEP[[ord("["), ord("{")]] = 1
_STEP[[ord("]"), ord("}")]] = -1
_VALUE = np.zeros(256, dtype=np.bool_)
_VALUE[[ord("["), ord("{"), _COMMA]] = True


class Excess(Enum):
    """What a text has too much of."""

    DEPTH = "depth"
    VALUES = "values"


def excess_of(data: bytes, *, max_depth: int, max_values: int = MAX_VALUES) -> Excess | None:
    """Whether arrays and objects nest more than `max_depth` deep, or they and the commas between their entries are more
    than `max_values`; whichever comes first. What is inside strings does not count.

    Exact for well-formed JSON; for anything else it may err either way, and the parser refuses that text anyhow.
    Linear time, a few MiB of working memory, block by block so that other threads get their turn.
    """
    opened = data.count(b"[") + data.count(b"{")
    if opened <= max_depth and opened + data.count(b",") <= max_values:
        return None
    depth = values = 0
    quotes = np.uint8(0)
    for structure in _structure(data):
        # Only the parity of the count matters, so wrapping at 256 is harmless.
        count = np.cumsum(structure == _QUOTE, dtype=np.uint8) + quotes
        outside = count % 2 == 0
        depths = np.cumsum(_STEP[structure] * outside, dtype=np.int32) + depth
        if depths.max() > max_depth:
            return Excess.DEPTH
        values += int(np.count_nonzero(_VALUE[structure] & outside))
        if values > max_values:
            return Excess.VALUES
        depth, quotes = int(depths[-1]), count[-1]
    return None


def _structure(data: bytes) -> Iterator[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """The brackets, braces, quotes and commas of each block, without escaped quotes."""
    start = 0
    while start < len(data):
        end = start + _BLOCK
        while end < len(data) and data[end - 1] == _BACKSLASH:
            end += 1
        block = data[start:end]
        if b"\\" in block:
            # Backslashes pair up from the left of a run, so what is left without the pairs escapes the next character.
            block = block.replace(b"\\\\", b"").replace(b'\\"', b"")
        structure = np.frombuffer(block.translate(None, _OTHER_BYTES), dtype=np.uint8)
        if len(structure):
            yield structure
        start = end
