"""The `input` of a validation entry: echoed as sent, within a budget.

A fault in a 10 MB state is reported three times (one entry per union member), each with the whole state as `input`.
Values are echoed while their JSON fits into what is left of `MAX_ECHOED_BYTES` for one response; a larger one gives
way to a note of its size.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from openjev_server.wire.json import to_json_bytes

__all__ = ["MAX_ECHOED_BYTES", "echo_inputs"]

MAX_ECHOED_BYTES = 256 * 1024
_LONG_NAME = 1024


def echo_inputs(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries in order, each `input` (and any long text beside it) as far as the budget goes."""
    left = MAX_ECHOED_BYTES
    sizes: dict[int, int] = {}
    kept = []
    for entry in entries:
        value = entry["input"]
        if id(value) not in sizes:
            sizes[id(value)] = len(to_json_bytes(value))
        size = sizes[id(value)]
        if size > left:
            entry = {**entry, "input": f"<{size} bytes, not echoed>"}  # noqa: PLW2901
        else:
            left -= size
        kept.append(_shorten(entry))
    return kept


def _shorten(entry: dict[str, Any]) -> dict[str, Any]:
    """Cuts texts that quote the request besides `input`: keys in `loc`, a wrong tag in `msg` and `ctx`."""
    short = {**entry, "loc": [_cut(part) for part in entry["loc"]], "msg": _cut(entry["msg"])}
    if "ctx" in entry:
        short["ctx"] = {name: _cut(value) for name, value in entry["ctx"].items()}
    return short


def _cut(value: Any) -> Any:
    return f"{value[:_LONG_NAME]}…" if isinstance(value, str) and len(value) > _LONG_NAME else value
