"""Answers on disk as they arrive, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .asking import Ask
from .fixture import Fixture
from .store import FixtureError, cut_unfinished_line, parse_fixture, read_lines, write_fixtures

__all__ = ["Journal"]


class Journal:
    """A fixture file that grows by whole requests; without a path, answers stay in memory only."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def resume(self, source: str, asks: Sequence[Ask]) -> tuple[list[Fixture], list[int]]:
        """What the file holds from an earlier run against the same `source`, and the numbers of the asks to be made.

        A request of which only a part is there was cut off while it was written: that part is dropped from the file,
        as is a line cut short, so that no answer is there twice when it is asked again.

        Raises FixtureError when the file holds answers from another source or to another wording, or something else.
        """
        if self._path is None or not self._path.exists():
            return [], list(range(len(asks)))
        cut_unfinished_line(self._path)
        kept: dict[str, Fixture] = {}
        lines = 0
        for where, line in read_lines(self._path):
            fixture = parse_fixture(line, where=where)
            if fixture.source != source:
                raise FixtureError(f"{self._path} holds answers of `{fixture.source}`, not of `{source}`")
            kept[fixture.id] = fixture
            lines += 1
        missing = [number for number, ask in enumerate(asks) if not self._holds(kept, ask)]
        for number in missing:
            for id_ in asks[number].questions:
                kept.pop(id_, None)
        if len(kept) < lines:
            self._replace(self._path, list(kept.values()))
        return list(kept.values()), missing

    def append(self, fixtures: Sequence[Fixture]) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write("".join(fixture.to_line() + "\n" for fixture in fixtures))

    def _holds(self, kept: dict[str, Fixture], ask: Ask) -> bool:
        """Whether every question of this request was answered, as it is asked now."""
        held = 0
        for id_, question in ask.questions.items():
            request = kept[id_].request if id_ in kept else None
            if request is None:
                continue
            if request.state != ask.state or request.question != question:
                raise FixtureError(f"{self._path} holds an answer to another wording of {id_}")
            held += 1
        return held == len(ask.questions)

    @staticmethod
    def _replace(path: Path, fixtures: Sequence[Fixture]) -> None:
        """In one move: a run that is stopped meanwhile loses nothing."""
        whole = path.with_name(f"{path.name}.whole")
        write_fixtures(whole, fixtures)
        os.replace(whole, path)
