"""Types of what goes into a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union

__all__ = ["Content", "ContentValue", "JSONContent", "JSONValue"]

JSONValue: TypeAlias = Union[str, int, float, bool, "Sequence[JSONValue | None]", "Mapping[str, JSONValue | None]"]
"""JSON, except for a bare null."""
JSONContent: TypeAlias = str | Sequence[JSONValue | None] | Mapping[str, JSONValue | None]
"""A string, or a JSON array or object."""
# Where the official client also takes images, this one takes texts.
ContentValue: TypeAlias = JSONValue
Content: TypeAlias = JSONContent
