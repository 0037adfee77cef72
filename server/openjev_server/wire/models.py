"""Which model names are answered, and by what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from openjev_server.wire import errors

__all__ = ["ALIASES", "PINNED", "ModelCatalog"]

ALIASES = ("jev-latest", "jev-preview", "openjev-latest")
"""Answered with the concrete id."""
PINNED = ("jev-1.13.0", "jev-1.14.0")
"""Versions that clients pin; echoed, because several clients refuse an answer from any other name."""


@dataclass(frozen=True, slots=True)
class ModelCatalog:
    """The names of one loaded model."""

    concrete: str
    """The loaded model's own id, `openjev-<name>`."""
    accept_pinned: bool = True
    description: str = "The model that this server runs"
    released: datetime = datetime(2026, 12, 2, tzinfo=UTC)

    def resolve(self, name: str) -> str:
        """The id to answer with. Raises `WireError` (400) for an unknown name; names are case-sensitive."""
        if name in ALIASES:
            return self.concrete
        if name == self.concrete or (self.accept_pinned and name in PINNED):
            return name
        raise errors.unknown_model(name)

    def listing(self, calibration: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """`GET /v1/models`: the dialect's list, beside it the same names as an OpenAI model list, and what calibrates
        the model's probabilities."""
        described = {
            self.concrete: self.description,
            **dict.fromkeys(ALIASES, f"Answered by {self.concrete}"),
        }
        names = [*ALIASES, self.concrete]
        created = int(self.released.timestamp())
        return {
            "models": [
                {"name": name, "description": described[name], "release_date": self.released.isoformat()}
                for name in names
            ],
            "object": "list",
            "data": [{"id": name, "object": "model", "created": created, "owned_by": "openjev"} for name in names],
            **({} if calibration is None else {"calibration": dict(calibration)}),
        }
