"""The report as tables in a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .report import Disagreement, Report, Section
from .wording import (
    BREAKDOWNS,
    counted,
    describe,
    excluded_line,
    floor_title,
    headline,
    interval,
    latency_line,
    mcnemar_line,
    price_line,
    value,
)

__all__ = ["print_report"]

_SHOWN_DISAGREEMENTS = 10


def print_report(report: Report, console: Console) -> None:
    """Everything but the texts; the ten clearest disagreements."""
    console.print(f"[bold]{escape(headline(report))}[/]")
    for side in (report.left, report.right):
        console.print(f"[dim]{escape(side.name)}: {escape(', '.join(side.models))}[/]", highlight=False)
    console.print(_metrics(report))
    for dimension, title in BREAKDOWNS.items():
        console.print(_breakdown(title.format(right=report.right.name), report.breakdowns[dimension]))
    if report.noise:
        console.print(_noise(report))
    lines = [
        mcnemar_line(report.mcnemar, report) if report.mcnemar else None,
        latency_line(report.latency) if report.latency else None,
        price_line(report.cost) if report.cost else None,
        excluded_line(report),
    ]
    for line in lines:
        if line is not None:
            console.print(escape(line), highlight=False)
    if report.disagreements:
        console.print(_disagreements(report))


def _table(title: str, first: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None, pad_edge=False)
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _metrics(report: Report) -> Table:
    table = _table("\nAll questions", "", "value", "95 % interval", "n")
    for estimate in report.overall.estimates:
        name = escape(describe(estimate.name, report))
        table.add_row(name, value(estimate), interval(estimate), counted(estimate))
    return table


def _breakdown(title: str, sections: tuple[Section, ...]) -> Table:
    table = _table(f"\n{escape(title)}", "", "same", "95 % interval", "hits/n", "majority", "random", "tv")
    for section in sections:
        agreement = section.estimate("agreement")
        table.add_row(
            escape(section.name),
            value(agreement),
            interval(agreement),
            counted(agreement),
            value(section.majority),
            value(section.random),
            value(section.estimate("total_variation")),
        )
    return table


def _noise(report: Report) -> Table:
    right, left = escape(report.right.name), escape(report.left.name)
    table = _table(f"\n{right}'s own noise, and {left} on the same questions", "", right, left, "n")
    for floor in report.noise:
        ours = {estimate.name: estimate for estimate in floor.left}
        table.add_row(f"[bold]{escape(floor_title(floor))}[/]")
        for repeated in floor.repeated:
            label = escape(describe(repeated.name, report))
            table.add_row(f"  {label}", value(repeated), value(ours.get(repeated.name)), counted(repeated))
    return table


def _disagreements(report: Report) -> Table:
    shown = report.disagreements[:_SHOWN_DISAGREEMENTS]
    title = f"\nDisagreements: {len(shown)} of {len(report.disagreements)}, {report.right.name}'s clearest first"
    table = _table(escape(title), "question", "margin", escape(report.right.name), escape(report.left.name), "ref")
    for row in shown:
        table.add_row(escape(row.id), _margin(row), _cut(row.right.label), _cut(row.left.label), _cut(row.reference))
    return table


def _margin(row: Disagreement) -> str:
    return "-" if row.margin is None else f"{row.margin:.2f}"


def _cut(label: str | None) -> str:
    if label is None:
        return "-"
    return escape(label if len(label) <= 24 else label[:23] + "…")
