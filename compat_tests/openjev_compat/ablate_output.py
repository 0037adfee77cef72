"""What `ablate` found, as a table, JSON and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .ablate import VariantResult
from .estimate import Estimate

__all__ = ["AblationReport", "ablation_markdown", "print_ablation"]

NAMES = ("agreement", "accuracy_left", "total_variation")
"""The estimates of the terminal's table; the other outputs have all, with their intervals."""


@dataclass(frozen=True, slots=True)
class AblationReport:
    model: str
    weights_hash: str
    hardware: str
    peak_memory_gib: Mapping[str, float]
    results: tuple[VariantResult, ...]
    failures: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def print_ablation(report: AblationReport, console: Console) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim", title=escape(_title(report)), title_justify="left")
    table.add_column("variant")
    for heading in ("as Jev", "as reference", "TV", "changed", "+", "-", "p", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in report.results:
        if result.reason is not None:
            table.add_row(escape(f"{result.name}: not run"))
            continue
        shown = [_value(result.estimates.get(name)).partition(" [")[0] for name in NAMES]
        changed = _value(result.changed).partition(" [")[0]
        table.add_row(escape(result.name), *shown, changed, *_against(result), f"{result.seconds:.1f}")
    console.print(table)
    for line in _lines(report):
        console.print(escape(line), highlight=False)


def ablation_markdown(report: AblationReport) -> str:
    heads = ("variant", "as Jev", "as the reference", "total variation from Jev", "ECE", "Brier", "changed", "+", "-")
    columns = (*heads, "p", "answered", "seconds", "how")
    lines = [f"# {_title(report)}", "", f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * 11} --- |"]
    for result in report.results:
        if result.reason is not None:
            lines.append(f"| {result.name} |{' |' * 11} not run: {result.reason} |")
            continue
        names = (*NAMES, "ece_reference", "brier_reference")
        cells = [_value(result.estimates.get(name)) for name in names]
        cells += [_value(result.changed), *_against(result)]
        cells += [f"{result.answered}/{result.questions}", f"{result.seconds:.1f}", result.how]
        lines.append(f"| {result.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(line + "\n" for line in _lines(report))])


def _title(report: AblationReport) -> str:
    return f"{report.model}@{report.weights_hash}: one change at a time"


def _lines(report: AblationReport) -> list[str]:
    memory = ", ".join(f"{place} {gib:.1f} GiB" for place, gib in report.peak_memory_gib.items())
    return [
        f"{report.hardware}; peak memory: {memory}",
        "In brackets 95 % intervals. + and -: questions on which only the variant, only the base gives Jev's answer "
        "(p: McNemar, exact).",
        *(f"not run: {result.name}: {result.reason}" for result in report.results if result.reason is not None),
        *(f"failed: {failure}" for failure in report.failures[:10]),
    ]


def _against(result: VariantResult) -> list[str]:
    test = result.against_base
    return ["-"] * 3 if test is None else [str(test.left_only), str(test.right_only), f"{test.p_value:.2g}"]


def _value(estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    if estimate.hits is None:
        return f"{estimate.value:.3f} [{estimate.low:.3f}-{estimate.high:.3f}]"
    return f"{estimate.value:.1%} [{100 * estimate.low:.1f}-{100 * estimate.high:.1f}]"
