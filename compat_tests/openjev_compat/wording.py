"""How numbers and slices are worded, the same in every output."""

from __future__ import annotations

from .cost import Cost, Latency
from .estimate import Estimate
from .mcnemar import McNemar
from .metrics import DESCRIPTIONS
from .noise import NoiseFloor
from .report import Report, Section

__all__ = [
    "BREAKDOWNS",
    "counted",
    "describe",
    "excluded_line",
    "floor_title",
    "headline",
    "interval",
    "latency_line",
    "mcnemar_line",
    "price_line",
    "value",
]

BREAKDOWNS = {
    "type": "By question type",
    "workflow": "By workflow",
    "options": "By number of allowed answers",
    "margin": "By {right}'s margin between its two best answers",
}
_EXCLUDED = {
    "unanswered by left": "only {right} answered",
    "unknown to right": "only {left} answered",
    "without a top answer": "without a top answer on one side",
    "without a reference": "without a reference",
    "tied reference": "with a tied reference",
    "label only at a threshold": "yes/no with a label only, at the threshold",
    "failed when asked": "failed when {left} was asked",
}


def describe(name: str, report: Report) -> str:
    """What a metric says, in the reader's names for the two sides."""
    text = DESCRIPTIONS[name].format(left=report.left.name, right=report.right.name)
    if name == "noul_agreement":
        text += f" ({report.thresholds.noul:g})"
    if "gate" in name:
        text += f" ({report.thresholds.gate:g})"
    return text


def floor_title(floor: NoiseFloor) -> str:
    """The run's name, and that another version of the model answered when it did."""
    return f"{floor.run} (another model version: {floor.model})" if floor.model is not None else floor.run


def value(estimate: Estimate | None) -> str:
    """A share as per cent, a distance with three decimals."""
    if estimate is None:
        return "-"
    return f"{estimate.value:.1%}" if _is_share(estimate) else f"{estimate.value:.3f}"


def interval(estimate: Estimate | None) -> str:
    """Both ends of the 95 % interval, in the value's own unit."""
    if estimate is None:
        return "-"
    if _is_share(estimate):
        return f"{estimate.low * 100:.1f}-{estimate.high * 100:.1f} %"
    return f"{estimate.low:.3f}-{estimate.high:.3f}"


def counted(estimate: Estimate | None) -> str:
    """`hits/n` of a share, n of anything else."""
    if estimate is None:
        return "-"
    return f"{estimate.hits}/{estimate.n}" if estimate.hits is not None else str(estimate.n)


def headline(report: Report) -> str:
    """The first thing to read: agreement with its interval, and what the majority answer would reach."""
    agreement = report.overall.estimate("agreement")
    if agreement is None:
        return f"{report.overall.n} questions, none with a top answer on both sides"
    text = (
        f"{report.left.name} gives {report.right.name}'s top answer on {counted(agreement)} questions: "
        f"{value(agreement)} [{interval(agreement)}]"
    )
    return text + _beside(report.overall)


def mcnemar_line(test: McNemar, report: Report) -> str:
    return (
        f"Against the references: both right {test.both}, only {report.left.name} {test.left_only}, "
        f"only {report.right.name} {test.right_only}, neither {test.neither} "
        f"(McNemar, exact: p = {test.p_value:.3g})"
    )


def latency_line(latency: Latency) -> str:
    return (
        f"Latency of {latency.requests} requests ({latency.decisions} decisions): p50 {latency.p50:.0f} ms, "
        f"p90 {latency.p90:.0f}, p95 {latency.p95:.0f}, p99 {latency.p99:.0f}"
    )


def price_line(cost: Cost) -> str:
    return f"Cost: ${cost.usd_per_1000:.4f} per 1,000 decisions ({cost.basis})"


def excluded_line(report: Report) -> str | None:
    """What was left out of which count; None when nothing was."""
    names = {"left": report.left.name, "right": report.right.name}
    parts = [f"{_EXCLUDED[what].format(**names)} {count}" for what, count in report.excluded.items() if count]
    return "Not counted: " + ", ".join(parts) if parts else None


def _beside(section: Section) -> str:
    parts = []
    if section.majority is not None:
        parts.append(f"always the majority answer {section.majority.value:.1%}")
    if section.random is not None:
        parts.append(f"a blind guess {section.random.value:.1%}")
    return f"; {', '.join(parts)}" if parts else ""


def _is_share(estimate: Estimate) -> bool:
    return estimate.hits is not None or estimate.name == "random"
