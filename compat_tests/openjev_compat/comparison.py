"""Get both sides' answers, from files or from servers, and compare them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast

from openjev_sdk import AsyncClient, Options, UsageError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .asking import Ask, asks_of
from .cost import Prices
from .fixture import Fixture
from .journal import Journal
from .live import LiveRun, Target, ask_all
from .metrics import Thresholds
from .pairing import Selection, select
from .report import Report, build_report
from .store import FixtureError, load_fixtures

__all__ = ["Comparison", "LiveSide", "NoAnswer", "RecordedSide", "Result", "ask_live", "compare"]


class NoAnswer(Exception):
    """Every request to one of the servers failed; the message holds the first failure."""


@dataclass(frozen=True, slots=True)
class RecordedSide:
    """Answers in fixture files."""

    paths: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class LiveSide:
    """Answers from a server; with `answers`, kept in that file and resumed from it."""

    url: str
    api_key: str | None
    model: str
    steps: int | None
    layout: str | None
    decimals: int | None
    answers: Path | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that decides what the report says. `steps` and `run` choose among a recorded left side's runs."""

    left: RecordedSide | LiveSide
    right: RecordedSide
    right_live: LiveSide | None
    selection: Selection
    steps: int | None
    run: str | None
    names: tuple[str, str] | None
    thresholds: Thresholds
    prices: Prices
    concurrency: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Result:
    report: Report
    failures: tuple[str, ...]


def compare(comparison: Comparison, console: Console) -> Result:
    """Ask what has to be asked, and build the report.

    Raises FixtureError when files, selection or settings cannot be used, and NoAnswer.
    """
    recorded = select(load_fixtures(comparison.right.paths), comparison.selection)
    if not recorded:
        raise FixtureError("nothing on the right side under this selection")
    failures: list[str] = []
    failed_questions, wall_s = 0, None
    right: Sequence[Fixture] = recorded
    if isinstance(comparison.left, LiveSide):
        # One run is asked: a repetition of it would only be asked the same again.
        right = [fixture for fixture in recorded if fixture.request is not None]
        asks = asks_of([fixture for fixture in right if fixture.run is None])
        if not asks:
            raise FixtureError("no fixture under this selection holds the text to ask")
        run = _ask(comparison, comparison.left, asks, console)
        left: Sequence[Fixture] = run.fixtures
        failures += run.failures
        failed_questions, wall_s = run.failed_questions, run.wall_s
        if comparison.right_live is not None:
            again = _ask(comparison, comparison.right_live, asks, console)
            failures += again.failures
            right = _with_references(again.fixtures, recorded)
    else:
        chosen = replace(comparison.selection, steps=comparison.steps, run=comparison.run)
        left = select(load_fixtures(comparison.left.paths), chosen)
    report = build_report(
        left,
        right,
        names=comparison.names or _names(comparison, left),
        thresholds=comparison.thresholds,
        prices=comparison.prices,
        wall_s=wall_s,
    )
    if failed_questions:
        report = replace(report, excluded={**report.excluded, "failed when asked": failed_questions})
    return Result(report, tuple(failures))


def ask_live(side: LiveSide, asks: Sequence[Ask], *, concurrency: int, timeout_s: float, console: Console) -> LiveRun:
    """Ask a server all of it, with a progress bar. Raises FixtureError for settings that cannot work."""
    options = Options(
        layout=cast("Literal['isolated', 'grouped'] | None", side.layout), steps=side.steps, decimals=side.decimals
    )
    target = Target(url=side.url, model=side.model, options=options, concurrency=concurrency)

    async def run() -> LiveRun:
        async with AsyncClient(side.url, side.api_key, timeout=timeout_s) as client:
            with Progress(
                TextColumn(f"asking {side.url}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            ) as progress:
                task = progress.add_task("", total=len(asks))
                return await ask_all(client, target, asks, Journal(side.answers), lambda: progress.advance(task))

    try:
        return asyncio.run(run())
    except UsageError as error:
        raise FixtureError(str(error)) from None


def _ask(comparison: Comparison, side: LiveSide, asks: Sequence[Ask], console: Console) -> LiveRun:
    run = ask_live(side, asks, concurrency=comparison.concurrency, timeout_s=comparison.timeout_s, console=console)
    if not run.fixtures:
        raise NoAnswer(f"no answer from {side.url}: {run.failures[0] if run.failures else 'it answered nothing asked'}")
    return run


def _with_references(answered: Sequence[Fixture], recorded: Sequence[Fixture]) -> list[Fixture]:
    references = {fixture.id: fixture.reference for fixture in recorded}
    return [replace(fixture, reference=references.get(fixture.id)) for fixture in answered]


def _names(comparison: Comparison, left: Sequence[Fixture]) -> tuple[str, str]:
    if isinstance(comparison.left, RecordedSide):
        return comparison.left.paths[0].stem, "Jev"
    return left[0].model, "Jev"
