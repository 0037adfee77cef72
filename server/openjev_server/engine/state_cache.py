"""States whose keys and values are still in the pool, found again by their tokens.

A state is found by the longest cached state that begins as it does, to the token, so that a transcript which grows
pays for what was appended. Two different states never share a row past their common tokens: what a request reads of
the cache is the function of the tokens it sent itself.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.protocol import Int32
from openjev_server.engine.rows import RowPool, Rows

__all__ = ["StateCache"]

PAGE = 32
"""Tokens that two states must share before sharing rows pays: fewer would only scatter a state's rows."""


@dataclass(frozen=True, slots=True)
class _Entry:
    tokens: Int32
    rows: Rows


class StateCache:
    """Keeps finished states' rows, least recently used first out.

    Args:
        pool: where the rows are counted.
        limit: rows that cached states may hold in use at most (rows shared between states count for each).
    """

    def __init__(self, pool: RowPool, *, limit: int) -> None:
        self._pool = pool
        self._limit = limit
        self._held = 0
        self._numbers = itertools.count()
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._pages: dict[bytes, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, tokens: Int32) -> Rows:
        """Rows of the longest cached beginning of `tokens`, shape [m], with one more user each; m may be 0."""
        number = None
        for digest in _digests(tokens):
            holders = self._pages.get(digest)
            if not holders:
                break
            number = next(reversed(holders))
        if number is None:
            return np.zeros(0, np.int64)
        self._entries.move_to_end(number)
        entry = self._entries[number]
        rows = entry.rows[: _common(entry.tokens, tokens)]
        self._pool.retain(rows)
        return rows

    def add(self, tokens: Int32, rows: Rows) -> None:
        """Keeps a state's rows, which hold its keys and values by now, as one more user of them.

        States that are wholly contained in it are dropped; a state over the limit or under a page is not kept.
        """
        if len(tokens) > self._limit or len(tokens) < PAGE:
            return
        digests = list(_digests(tokens))
        for number in list(self._pages.get(digests[0], ())):
            held = self._entries[number].tokens
            if len(held) <= len(tokens) and np.array_equal(held, tokens[: len(held)]):
                self._drop(number)
        while self._held + len(tokens) > self._limit:
            self._drop(next(iter(self._entries)))
        number = next(self._numbers)
        self._entries[number] = _Entry(tokens, rows)
        self._held += len(tokens)
        self._pool.retain(rows)
        for digest in digests:
            self._pages.setdefault(digest, {})[number] = None

    def evict(self) -> bool:
        """Drops the least recently used state; False when there is none. Rows that requests use stay theirs."""
        if not self._entries:
            return False
        self._drop(next(iter(self._entries)))
        return True

    def clear(self) -> None:
        while self.evict():
            pass

    def _drop(self, number: int) -> None:
        entry = self._entries.pop(number)
        self._held -= len(entry.tokens)
        self._pool.release(entry.rows)
        for digest in _digests(entry.tokens):
            holders = self._pages[digest]
            del holders[number]
            if not holders:
                del self._pages[digest]


def _digests(tokens: Int32) -> Iterator[bytes]:
    """One digest for every whole page, of all tokens up to its end."""
    running = hashlib.blake2b(digest_size=16)
    pages = np.ascontiguousarray(tokens, dtype="<i4")
    for start in range(0, len(tokens) - PAGE + 1, PAGE):
        running.update(pages[start : start + PAGE].data)
        yield running.digest()


def _common(one: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length
