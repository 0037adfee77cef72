"""Fields of JSON bodies, read as strictly as the official client does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["InvalidError", "read_entries", "read_number", "read_object", "read_string", "read_text"]

V = TypeVar("V")
K = TypeVar("K", str, int)


class InvalidError(ValueError):
    """The path of a bad field."""


def read_entries(
    raw: dict[str, Any], name: str, path: str, key: Callable[[str], K], value: Callable[[Any, str], V]
) -> dict[K, V]:
    """A field that holds a mapping."""
    place = f"{path}.{name}"
    result = {}
    for text, entry in read_object(raw.get(name), place).items():
        try:
            parsed = key(text)
        except ValueError:
            raise InvalidError(f"{place}.{text}") from None
        result[parsed] = value(entry, f"{place}.{text}")
    return result


def read_object(value: Any, path: str) -> dict[str, Any]:
    """A JSON object. Raises InvalidError, as do the others."""
    if not isinstance(value, dict):
        raise InvalidError(path)
    return value


def read_string(raw: dict[str, Any], name: str, path: str) -> str:
    """A field that holds a string."""
    value = raw.get(name)
    if not isinstance(value, str):
        raise InvalidError(f"{path}.{name}" if path else name)
    return value


def read_number(value: Any, path: str) -> float:
    """A number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidError(path)
    return float(value)


def read_text(value: Any, path: str) -> str | dict[str, Any] | list[Any]:
    """A text of a legend."""
    if not isinstance(value, str | dict | list):
        raise InvalidError(f"{path}.str")
    return value
