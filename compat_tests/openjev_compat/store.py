"""Fixture files: read and validated, written, and listed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from .fixture import Fixture

__all__ = [
    "FixtureError",
    "checked",
    "cut_unfinished_line",
    "load_fixtures",
    "parse_fixture",
    "parse_json",
    "read_lines",
    "schema",
    "write_fixtures",
]


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


def parse_json(text: str, *, where: str) -> Any:
    """JSON as the standard has it: NaN, Infinity and numbers beyond a double are refused, as FixtureError."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError:
        raise FixtureError(f"{where}: not JSON that can be read: nested too deeply") from None
    except ValueError as error:
        raise FixtureError(f"{where}: not JSON: {error}") from None


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Each line that says something, after its `file:line`. Raises FixtureError for one that is not UTF-8."""
    with path.open("rb") as lines:
        for number, raw in enumerate(lines, start=1):
            where = f"{path}:{number}"
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise FixtureError(f"{where}: not UTF-8: {error.reason} at byte {error.start + 1}") from None
            if text.strip():
                yield where, text


def parse_fixture(text: str, *, where: str) -> Fixture:
    """The fixture of one line; `where` is named by the FixtureError that a bad line raises."""
    line = parse_json(text, where=where)
    problem = min(_validator().iter_errors(line), key=lambda error: len(error.path), default=None)
    if problem is not None:
        raise FixtureError(f"{where}: {_explained(problem)}")
    fixture = Fixture.from_json(line)
    if fixture.answer["type"] != fixture.type:
        raise FixtureError(f"{where}: the answer is a {fixture.answer['type']}, the question a {fixture.type}")
    return fixture


def checked(fixture: Fixture) -> Fixture:
    """The fixture itself. Raises FixtureError when its line could not be written and read again."""
    line = fixture.to_line()
    try:
        line.encode()
    except UnicodeEncodeError as error:
        raise FixtureError(f"{fixture.id!r}: not UTF-8: {error.reason}") from None
    parse_fixture(line, where=fixture.id)
    return fixture


def cut_unfinished_line(path: Path) -> None:
    """Drop what follows the last line end: a writer that was killed left it, and a line after it would be lost too."""
    content = path.read_bytes()
    end = content.rfind(b"\n") + 1
    if end < len(content):
        os.truncate(path, end)


def load_fixtures(paths: Sequence[Path]) -> list[Fixture]:
    """Every fixture of the files, and of the `*.jsonl` files below the directories, in order.

    Raises FixtureError for a missing path, a file without a line, an invalid line, or one run answering a question
    twice.
    """
    fixtures: list[Fixture] = []
    seen: dict[tuple[str, str | None, int | None, str], str] = {}
    for file in _files(paths):
        before = len(fixtures)
        for where, text in read_lines(file):
            fixture = parse_fixture(text, where=where)
            key = (fixture.id, fixture.run, fixture.steps, fixture.model)
            if key in seen:
                raise FixtureError(f"{where}: {fixture.id} was answered before, at {seen[key]}")
            seen[key] = where
            fixtures.append(fixture)
        if len(fixtures) == before and file in paths:
            raise FixtureError(f"{file}: holds no line")
    if not fixtures:
        raise FixtureError(f"{', '.join(map(str, paths))}: no file below holds a line")
    return fixtures


def write_fixtures(path: Path, fixtures: Iterable[Fixture]) -> int:
    """Write the lines, replacing the file; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [fixture.to_line() + "\n" for fixture in fixtures]
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _explained(problem: ValidationError) -> str:
    """Where and why; of alternatives, what is wrong with the one that was meant."""
    if problem.validator not in {"oneOf", "anyOf"} or not problem.context:
        place = "/".join(str(part) for part in problem.absolute_path)
        return f"{place or 'line'}: {problem.message[:300]}"
    branches: dict[Any, list[ValidationError]] = {}
    for error in problem.context:
        branches.setdefault(error.schema_path[0], []).append(error)
    meant = [errors for errors in branches.values() if not any(_another_kind(error) for error in errors)]
    nearest = (
        min(errors, key=lambda error: (not _another_kind(error), len(error.path)))
        for errors in meant or branches.values()
    )
    return " or ".join(dict.fromkeys(map(_explained, nearest)))


def _another_kind(error: ValidationError) -> bool:
    """Whether this alternative is for another type of value, or of answer."""
    return error.validator == "const" or (error.validator == "type" and not error.path)


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
