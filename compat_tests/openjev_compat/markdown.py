"""The report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .report import Report, Section
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

__all__ = ["breakdown_table", "markdown", "table"]

_SHOWN_DISAGREEMENTS = 50


def markdown(report: Report) -> str:
    """Everything but the texts; the fifty clearest disagreements."""
    left, right = report.left, report.right
    parts = [
        f"# Agreement: {left.name} with {right.name}",
        headline(report) + ".",
        f"{left.name}: {_code(left.models)}. {right.name}: {_code(right.models)}.",
        "## All questions",
        table(
            ["", "value", "95 % interval", "n"],
            [[describe(row.name, report), value(row), interval(row), counted(row)] for row in report.overall.estimates],
        ),
    ]
    for dimension, title in BREAKDOWNS.items():
        parts += [f"## {title.format(right=right.name)}", breakdown_table(report.breakdowns[dimension])]
    if report.noise:
        parts += [f"## {right.name}'s own noise, and {left.name} on the same questions", _noise(report)]
    lines = [
        mcnemar_line(report.mcnemar, report) if report.mcnemar else None,
        latency_line(report.latency) if report.latency else None,
        price_line(report.cost) if report.cost else None,
        excluded_line(report),
    ]
    parts += [f"{line}." for line in lines if line is not None]
    if report.disagreements:
        shown = report.disagreements[:_SHOWN_DISAGREEMENTS]
        parts += [
            f"## Disagreements: {len(shown)} of {len(report.disagreements)}, {right.name}'s clearest first",
            table(
                ["question", "margin", right.name, left.name, "reference"],
                [
                    [
                        row.id,
                        "-" if row.margin is None else f"{row.margin:.2f}",
                        row.right.label or "-",
                        row.left.label or "-",
                        row.reference or "-",
                    ]
                    for row in shown
                ],
            ),
        ]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table: the first column to the left, the others to the right."""
    lines = [_row(header), "| --- |" + " ---: |" * (len(header) - 1)]
    return "\n".join([*lines, *(_row(row) for row in rows)])


def breakdown_table(sections: Iterable[Section]) -> str:
    """Agreement of each slice with its interval, beside the two baselines."""
    rows = []
    for section in sections:
        agreement = section.estimate("agreement")
        rows.append(
            [
                section.name,
                value(agreement),
                interval(agreement),
                counted(agreement),
                value(section.majority),
                value(section.random),
                value(section.estimate("total_variation")),
            ]
        )
    return table(["", "agreement", "95 % interval", "hits/n", "majority answer", "random", "total variation"], rows)


def _noise(report: Report) -> str:
    rows = []
    for floor in report.noise:
        ours = {estimate.name: estimate for estimate in floor.left}
        rows += [
            [
                f"{floor_title(floor)}: {describe(repeated.name, report)}",
                value(repeated),
                value(ours.get(repeated.name)),
                counted(repeated),
            ]
            for repeated in floor.repeated
        ]
    return table(["", report.right.name, report.left.name, "n"], rows)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
