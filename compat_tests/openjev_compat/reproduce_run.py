"""Runs the modes one after the other, each with a journal of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openjev_server.canvas.templates import is_template_file
from openjev_server.settings import Settings
from openjev_server.writable import check_files
from rich.console import Console

from .bars import nodes_bar
from .comparison import LiveSide, ask_live
from .journal import Journal
from .local_model import LocalModel, Run, Setup, seed_template
from .machine import describe_machine, peak_memory_gib
from .public_cases import Cases, default_fixtures, read_cases, read_recorded
from .reproduce import MODES, OWN_WORDING, SEED_WORDING, Mode, Outcome, measure_mode, seed_answers
from .reproduce_output import SeedReport
from .store import FixtureError

__all__ = ["ReproduceOptions", "reproduce"]

REQUEST_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ReproduceOptions:
    """The flags of the command."""

    settings: Settings
    cases: Path
    template: str
    our_template: str
    out: Path
    fixtures: Path | None
    modes: str
    nodes: int | None
    resume: bool
    url: str | None
    api_key: str | None


def reproduce(options: ReproduceOptions, console: Console) -> SeedReport:
    """Asks what no journal holds yet, and compares.

    Raises FixtureError for inputs that cannot be used, and CannotWrite before anything is asked.
    """
    modes = _chosen(options.modes)
    fixtures = options.fixtures or default_fixtures()
    if fixtures is None:
        raise FixtureError("no recorded answers beside this package: give --fixtures, the directory of a checkout")
    recorded = read_recorded(fixtures, [mode.seed_run for mode in MODES.values() if mode.seed_run is not None])
    cases = read_cases(options.cases, recorded.jev, nodes=options.nodes)
    journals = {mode: options.out / f"{mode.name.replace(', ', '-').replace(' ', '-')}.jsonl" for mode in modes}
    check_files(options.out / "report.json", options.out / "report.md", *journals.values())
    tolerance = SEED_WORDING if is_template_file(options.template) else OWN_WORDING
    source: _Local | _Live = _Live(options, console) if options.url is not None else _Local(options, console)
    outcomes: list[Outcome] = []
    failures: list[str] = []
    for mode in modes:
        journal = journals[mode]
        if not options.resume:
            journal.unlink(missing_ok=True)
        template, run = source.answers(mode, cases, journal)
        answers = seed_answers(run.fixtures) if mode.seed_run is not None else list(run.fixtures)
        failures += [f"{mode.name}: {failure}" for failure in run.failures]
        outcomes.append(measure_mode(mode, answers, cases, recorded, tolerance, template=template, seconds=run.seconds))
    return SeedReport(
        model=source.model,
        weights_hash=source.weights_hash,
        hardware=describe_machine(),
        load_seconds=source.load_seconds,
        peak_memory_gib=peak_memory_gib(),
        tolerance=tolerance,
        changed=cases.changed,
        outcomes=tuple(outcomes),
        failures=tuple(failures),
    )


class _Local:
    def __init__(self, options: ReproduceOptions, console: Console) -> None:
        self._local = LocalModel(options.settings)
        self._seed = seed_template(self._local, options.template)
        self._ours = self._local.template(options.our_template)
        self._console = console

    @property
    def model(self) -> str:
        return self._local.id

    @property
    def weights_hash(self) -> str:
        return self._local.weights_hash

    @property
    def load_seconds(self) -> float:
        return self._local.load_seconds

    def answers(self, mode: Mode, cases: Cases, journal: Path) -> tuple[str, Run]:
        template = self._seed if mode.seed_run is not None else self._ours
        setup = Setup(mode.name, template, mode.layout, mode.steps)
        with nodes_bar(mode.name, len(cases.asks), self._console) as advance:
            run = self._local.run(setup, cases.asks, Journal(journal), advance)
        return f"{template.id} {template.hash}", run


class _Live:
    weights_hash = "?"
    load_seconds = 0.0

    def __init__(self, options: ReproduceOptions, console: Console) -> None:
        assert options.url is not None
        self._options = options
        self._console = console
        self.model = options.url

    def answers(self, mode: Mode, cases: Cases, journal: Path) -> tuple[str, Run]:
        """Raises FixtureError for a mode that no server has."""
        assert self._options.url is not None
        if mode.seed_run is not None:
            raise FixtureError(f"{mode.name!r} is not what a server answers: with --url choose --modes 4,5")
        side = LiveSide(
            self._options.url, self._options.api_key, "jev-latest", mode.steps, mode.layout.value, 6, journal
        )
        live = ask_live(side, cases.asks, concurrency=4, timeout_s=REQUEST_TIMEOUT_S, console=self._console)
        seconds = {(f.case, f.node): (f.latency_ms or 0.0) / 1000 for f in live.fixtures}
        return "of the server", Run(live.fixtures, live.failures, live.failed_questions, sum(seconds.values()))


def _chosen(numbers: str) -> list[Mode]:
    by_number = {str(number): mode for number, mode in enumerate(MODES.values(), start=1)}
    chosen = [by_number.get(number.strip()) for number in numbers.split(",")]
    modes = [mode for mode in chosen if mode is not None]
    if len(modes) < len(chosen) or len(set(modes)) < len(modes):
        raise FixtureError(f"--modes {numbers}: numbers from 1 to {len(by_number)}, each once, separated by commas")
    return modes
