"""What `reproduce-seed` found, as a table, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .estimate import Estimate
from .reproduce import MODES, PUBLIC_QUESTIONS, Outcome, Tolerance

__all__ = ["SeedReport", "markdown", "print_seed_report"]

COLUMNS = {"mode": 0, "right": 1, "seed": 2, "Jev": 3, "as seed": 4, "as Jev": 5, "s": 8, "": 9}
"""Of the terminal's table, and which cell of a row each shows; the other outputs have all of them."""


@dataclass(frozen=True, slots=True)
class SeedReport:
    """Everything that the run says."""

    model: str
    weights_hash: str
    hardware: str
    load_seconds: float
    peak_memory_gib: Mapping[str, float]
    tolerance: Tolerance
    changed: int
    outcomes: tuple[Outcome, ...]
    failures: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """What a verdict would need besides what was run; empty where there is one."""
        done = {outcome.mode: outcome for outcome in self.outcomes}
        found = []
        for mode in MODES.values():
            if mode.seed_run is None:
                continue
            outcome = done.get(mode.name)
            if outcome is None:
                found.append(f"{mode.name}: not run")
                continue
            compared = min(outcome.answered, outcome.seed_questions)
            if compared < PUBLIC_QUESTIONS:
                found.append(f"{mode.name}: {compared} of the {PUBLIC_QUESTIONS} public questions")
        return tuple(found)

    @property
    def passed(self) -> bool | None:
        """None, no verdict, unless every mode of the seed answered every public question."""
        return None if self.missing else all(outcome.within is not False for outcome in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def print_seed_report(report: SeedReport, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", title=escape(_title(report)), title_justify="left")
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in ("mode", "") else "right", no_wrap=True)
    for outcome in report.outcomes:
        cells = [escape(cell.partition(" [")[0]) for cell in _row(outcome)]
        table.add_row(*(cells[number] for number in COLUMNS.values()))
    console.print(table)
    for line in _lines(report):
        console.print(escape(line), highlight=False)


def markdown(report: SeedReport) -> str:
    heads = ("mode", "right by the references", "the seed's", "Jev's", "same as the seed", "same as Jev")
    columns = (*heads, "answered", "prompt tokens", "seconds", "")
    lines = [f"# {_title(report)}", "", f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 2)} --- |"]
    lines += [f"| {' | '.join(_row(outcome))} |" for outcome in report.outcomes]
    return "\n".join([*lines, "", *(line + "\n" for line in _lines(report))])


def _title(report: SeedReport) -> str:
    return f"{report.model}@{report.weights_hash} on the public questions"


def _row(outcome: Outcome) -> list[str]:
    return [
        outcome.mode,
        _counted(outcome.right),
        "-" if outcome.seed_right is None else str(outcome.seed_right),
        str(outcome.jev_right),
        _share(outcome.same_as_seed),
        _share(outcome.same_as_jev),
        f"{outcome.answered}/{outcome.questions}",
        f"{outcome.input_tokens:,}",
        f"{outcome.seconds:.1f}",
        {True: "within", False: "not within", None: ""}[outcome.within],
    ]


def _lines(report: SeedReport) -> list[str]:
    memory = ", ".join(f"{place} {gib:.1f} GiB" for place, gib in report.peak_memory_gib.items())
    lines = [
        f"{report.hardware}; loaded in {report.load_seconds:.1f} s; peak memory: {memory}",
        *(f"{o.mode}: template {o.template}" for o in report.outcomes),
        f"Tolerance: right answers within {report.tolerance.right} of the seed's, "
        f"the seed's own answer on {report.tolerance.same:.0%} of the questions",
    ]
    if report.changed:
        lines.append(f"The case files hold another answer of Jev than the recording to {report.changed} questions")
    lines += [f"failed: {failure}" for failure in report.failures[:10]]
    for outcome in report.outcomes:
        lines += [f"{outcome.mode}: {reason}" for reason in outcome.reasons]
    verdict = {
        True: "PASS: the seed is reproduced",
        False: "FAIL: the seed is not reproduced",
        None: f"no verdict: {'; '.join(report.missing)}",
    }
    return [*lines, verdict[report.passed]]


def _counted(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.hits}/{estimate.n}"


def _share(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    return f"{estimate.value:.1%} [{100 * estimate.low:.1f}-{100 * estimate.high:.1f}]"
