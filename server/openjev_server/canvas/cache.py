"""A least-recently-used cache bounded by weight."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

__all__ = ["WeightedCache"]

Value = TypeVar("Value")


class WeightedCache(Generic[Value]):
    """Thread-safe; values are not None. One heavier than the whole cache is computed and not kept."""

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

    def find(self, key: Hashable) -> Value | None:
        """The value of `key`, if it is there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def add(self, key: Hashable, value: Value, weight: int) -> None:
        """Keeps a value, in place of an older one of its key."""
        if weight > self._limit:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            self._weight += weight - (old[1] if old else 0)
            self._entries[key] = (value, weight)
            while self._weight > self._limit:
                _, (_, gone) = self._entries.popitem(last=False)
                self._weight -= gone

    def get(self, key: Hashable, make: Callable[[], tuple[Value, int]]) -> Value:
        """The value of `key`; `make` gives it with its weight when it is not there."""
        found = self.find(key)
        if found is not None:
            return found
        # Made outside the lock: two threads may make the same value once each, and none waits for another's.
        value, weight = make()
        self.add(key, value, weight)
        return value
