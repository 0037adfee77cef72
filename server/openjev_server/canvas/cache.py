"""A least-recently-used cache bounded by weight."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["WeightedCache"]

Value = TypeVar("Value")


class WeightedCache(Generic[Value]):
    """Thread-safe. A value heavier than the whole cache is computed and not kept."""

    def __init__(self, limit: int) -> None:
        """`limit` in the unit of the weights, e.g. bytes; 0 keeps nothing."""
        self._limit = limit
        self._weight = 0
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    @property
    def weight(self) -> int:
        return self._weight

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable, make: Callable[[], tuple[Value, int]]) -> Value:
        """The value of `key`; `make` gives it with its weight when it is not there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                return entry[0]
        # Made outside the lock: two threads may make the same value once each, and none waits for another's.
        value, weight = make()
        if weight > self._limit:
            return value
        with self._lock:
            old = self._entries.pop(key, None)
            self._weight += weight - (old[1] if old else 0)
            self._entries[key] = (value, weight)
            while self._weight > self._limit:
                _, (_, gone) = self._entries.popitem(last=False)
                self._weight -= gone
        return value
