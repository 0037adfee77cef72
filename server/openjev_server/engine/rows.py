"""Which rows of the key pool are in use, and by how many.

A row holds one token's keys and values in every layer. Rows are counted, not owned: a state that several requests and
the cache share is released by each of them, and its rows are free when the last has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["PoolFull", "RowPool", "Rows"]

Rows = NDArray[np.int64]


class PoolFull(Exception):
    """Fewer rows are free than were asked for."""


class RowPool:
    """Counts the users of `capacity` rows."""

    def __init__(self, capacity: int) -> None:
        self._users = np.zeros(capacity, np.int32)
        self._free = capacity
        self._next = 0

    @property
    def capacity(self) -> int:
        return len(self._users)

    @property
    def free(self) -> int:
        return self._free

    def take(self, count: int) -> Rows:
        """Free rows with one user, ascending, shape [count]. Consecutive where a long enough run is free: the CPU
        then reads them as a view. Raises PoolFull, taking none."""
        if count > self._free:
            raise PoolFull(f"{count} rows were asked for, {self._free} are free")
        rows = self._behind_the_last(count)
        if rows is None:
            rows = self._run_of(count)
        if rows is None:
            rows = np.flatnonzero(self._users == 0)[:count]
        self._next = int(rows[-1]) + 1 if count else self._next
        self._users[rows] = 1
        self._free -= count
        return rows

    def retain(self, rows: Rows) -> None:
        """One more user for rows in use (each at most once in `rows`)."""
        self._users[rows] += 1

    def release(self, rows: Rows) -> None:
        """One user less (each row at most once in `rows`)."""
        self._users[rows] -= 1
        left = self._users[rows]
        assert not (left < 0).any(), "a row was released more often than it was taken"
        self._free += int((left == 0).sum())

    def users(self, rows: Rows) -> NDArray[np.int32]:
        """How many users each row has."""
        return self._users[rows]

    def _behind_the_last(self, count: int) -> Rows | None:
        """Where the last rows were taken there usually are more: looking there does not cost a scan of the pool."""
        stop = self._next + count
        if stop > len(self._users) or self._users[self._next : stop].any():
            return None
        return np.arange(self._next, stop)

    def _run_of(self, count: int) -> Rows | None:
        used = np.ones(len(self._users) + 2, np.bool_)
        np.not_equal(self._users, 0, out=used[1:-1])
        edges = np.flatnonzero(used[1:] != used[:-1])
        starts, stops = edges[::2], edges[1::2]
        fits = np.flatnonzero(stops - starts >= count)
        return np.arange(starts[fits[0]], starts[fits[0]] + count) if len(fits) else None
