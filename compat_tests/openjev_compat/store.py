"""Fixture files: read and validated, written, and listed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from .fixture import Fixture

__all__ = ["FixtureError", "load_fixtures", "parse_fixture", "schema", "write_fixtures"]


class FixtureError(ValueError):
    """A file, a line or a selection of fixtures that cannot be used, and why."""


@cache
def schema() -> dict[str, Any]:
    """The JSON Schema of one line."""
    text = files(__package__).joinpath("fixture.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(schema())


def parse_fixture(text: str, *, where: str) -> Fixture:
    """The fixture of one line; `where` is named by the FixtureError that a bad line raises."""
    try:
        line = json.loads(text)
    except ValueError as error:
        raise FixtureError(f"{where}: not JSON: {error}") from None
    problem = min(_validator().iter_errors(line), key=lambda error: len(error.path), default=None)
    if problem is not None:
        path = "/".join(str(part) for part in problem.path)
        raise FixtureError(f"{where}: {path or 'line'}: {problem.message[:300]}")
    fixture = Fixture.from_json(line)
    if fixture.answer["type"] != fixture.type:
        raise FixtureError(f"{where}: the answer is a {fixture.answer['type']}, the question a {fixture.type}")
    return fixture


def load_fixtures(paths: Sequence[Path]) -> list[Fixture]:
    """Every fixture of the files, and of the `*.jsonl` files below the directories, in order.

    Raises FixtureError for a missing path, an invalid line, or one run answering a question twice.
    """
    fixtures: list[Fixture] = []
    seen: dict[tuple[str, str | None, int | None, str], str] = {}
    for file in _files(paths):
        with file.open(encoding="utf-8") as lines:
            for number, text in enumerate(lines, start=1):
                if not text.strip():
                    continue
                where = f"{file}:{number}"
                fixture = parse_fixture(text, where=where)
                key = (fixture.id, fixture.run, fixture.steps, fixture.model)
                if key in seen:
                    raise FixtureError(f"{where}: {fixture.id} was answered before, at {seen[key]}")
                seen[key] = where
                fixtures.append(fixture)
    return fixtures


def write_fixtures(path: Path, fixtures: Iterable[Fixture]) -> int:
    """Write the lines, replacing the file; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [fixture.to_line() + "\n" for fixture in fixtures]
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(path.rglob("*.jsonl"))
            if not below:
                raise FixtureError(f"{path}: no *.jsonl file below")
            found.extend(below)
        elif path.is_file():
            found.append(path)
        else:
            raise FixtureError(f"{path}: no such file or directory")
    return found
