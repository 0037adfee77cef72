"""What the owner of the released model compares: downloaded case files, and the recorded answers to the same ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from .asking import Ask, asks_of
from .cases import import_cases
from .decision import decide
from .fixture import Fixture
from .store import FixtureError, load_fixtures

__all__ = ["Cases", "Recorded", "default_fixtures", "labels_of", "read_cases", "read_recorded"]

JEV = "typesafe"
JEV_FILE = "public_evals.jsonl"


@dataclass(frozen=True, slots=True)
class Cases:
    """The questions with their texts, node by node, and Jev's answers to them."""

    asks: tuple[Ask, ...]
    jev: Mapping[str, Fixture]
    """By question id. References as recorded, where they are; otherwise as the case files have them."""
    changed: int
    """Questions to which the case files hold another top answer of Jev than the recording."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The committed answers: Jev's and, by run, the seed's, each by question id."""

    jev: Mapping[str, Fixture]
    seed: Mapping[str, Mapping[str, Fixture]]


def default_fixtures() -> Path | None:
    """The `fixtures` directory of a checkout, when this code runs from one."""
    path = Path(__file__).resolve().parents[2] / "fixtures"
    return path if path.is_dir() else None


def read_recorded(directory: Path, runs: Sequence[str]) -> Recorded:
    """Jev's answers from `jev/public_evals.jsonl` and the seed's from `seed/<run>.jsonl`. Raises FixtureError."""
    jev = load_fixtures([directory / "jev" / JEV_FILE])
    seed = {run: load_fixtures([directory / "seed" / f"{run}.jsonl"]) for run in runs}
    return Recorded(_by_id(jev), {run: _by_id(fixtures) for run, fixtures in seed.items()})


def read_cases(directory: Path, recorded: Mapping[str, Fixture], *, nodes: int | None = None) -> Cases:
    """The questions that Jev answered in `*-cases.js` of a directory, the first `nodes` nodes of them.

    Where answers are recorded, only questions among them count. Raises FixtureError.
    """
    files = sorted(directory.glob("*-cases.js"))
    if not files:
        raise FixtureError(f"{directory}: no <workflow>-cases.js; download them from the public evaluation pages")
    found: list[Fixture] = []
    for file in files:
        try:
            models = import_cases(file, recorded_at=datetime.now(UTC).date().isoformat())
        except (OSError, UnicodeDecodeError) as error:
            raise FixtureError(f"{file}: {error}") from None
        found += _jev_of(models, file, recorded)
    asked = [fixture for fixture in found if not recorded or fixture.id in recorded]
    if not asked:
        raise FixtureError(f"{directory}: none of the {len(found)} questions was recorded; are these the public cases?")
    asks = asks_of(asked)[:nodes]
    wanted = {id_ for ask in asks for id_ in ask.questions}
    jev = {f.id: _known(f, recorded.get(f.id)) for f in asked if f.id in wanted}
    now = labels_of(asked)
    before = labels_of(list(recorded.values()))
    changed = sum(now[id_] != before[id_] for id_ in wanted if id_ in before)
    return Cases(tuple(asks), jev, changed)


def labels_of(fixtures: Sequence[Fixture]) -> dict[str, str | None]:
    """Top answers by question id."""
    return {fixture.id: decide(fixture, fixture.allowed).label for fixture in fixtures}


def _jev_of(models: Mapping[str, list[Fixture]], file: Path, recorded: Mapping[str, Fixture]) -> list[Fixture]:
    """The answers of the recorded version of Jev, else of whatever version the file has."""
    known = {fixture.model for fixture in recorded.values()}
    names = [name for name in models if name in known] or [name for name in models if name.startswith(JEV)]
    if not names:
        raise FixtureError(f"{file}: no answers of Jev; it has {', '.join(models)}")
    return models[names[0]]


def _known(fixture: Fixture, recorded: Fixture | None) -> Fixture:
    """Recorded answer and reference with the texts of the case file."""
    return fixture if recorded is None else replace(recorded, request=fixture.request)


def _by_id(fixtures: Sequence[Fixture]) -> dict[str, Fixture]:
    return {fixture.id: fixture for fixture in fixtures}
