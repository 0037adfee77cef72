"""Answers on disk as they arrive, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .asking import Ask
from .fixture import Fixture
from .store import FixtureError, parse_fixture, read_lines

__all__ = ["Journal"]


class Journal:
    """A fixture file that grows by whole requests; without a path, answers stay in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._kept: dict[str, Fixture] = {}

    def resume(self, source: str) -> list[Fixture]:
        """What the file holds from an earlier run against the same `source`. A line cut short is dropped.

        Raises FixtureError when the file holds answers from another source, or something else.
        """
        if self._path is None or not self._path.exists():
            return []
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            self._path.write_bytes(whole)
        for where, line in read_lines(self._path):
            fixture = parse_fixture(line, where=where)
            if fixture.source != source:
                raise FixtureError(f"{self._path} holds answers of `{fixture.source}`, not of `{source}`")
            self._kept[fixture.id] = fixture
        return list(self._kept.values())

    def holds(self, ask: Ask) -> bool:
        """Whether every question of this request was answered, as it is asked now."""
        for id_, question in ask.questions.items():
            kept = self._kept.get(id_)
            if kept is None or kept.request is None:
                return False
            if kept.request.state != ask.state or kept.request.question != question:
                raise FixtureError(f"{self._path} holds an answer to another wording of {id_}")
        return True

    def append(self, fixtures: Sequence[Fixture]) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write("".join(fixture.to_line() + "\n" for fixture in fixtures))
