"""A read-only, ordered mapping that can be pickled and copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

__all__ = ["FrozenMapping"]

K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)


class FrozenMapping(Mapping[K, V_co], Generic[K, V_co]):
    """A copy of a mapping, keys in the same order, that nobody can change. Equal to any mapping of equal items."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V_co]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: K) -> V_co:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        # Values may be lists; the keys alone tell most mappings apart, and equal mappings have equal keys.
        return hash(frozenset(self._items))

    def __repr__(self) -> str:
        return repr(self._items)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._items,)
