"""The report's plots as SVG text, to be put into the page."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from .report import Report, Section

__all__ = ["agreement_by_margin", "agreement_by_workflow", "latency_distribution", "reliability_diagram"]

_LEFT, _RIGHT, _QUIET, _INK = "#2f6fde", "#e07b39", "#b6bdc9", "#39414f"
_STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Segoe UI", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": _QUIET,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "text.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def agreement_by_margin(report: Report) -> str | None:
    """Agreement with its interval in each bracket of right's margin, and the majority baseline."""
    sections = [section for section in report.breakdowns["margin"] if section.estimate("agreement") is not None]
    if not sections:
        return None
    with _figure("margin", height=4.0) as (axes, svg):
        places = range(len(sections))
        axes.bar(places, [_agreement(section) for section in sections], color=_LEFT, width=0.62, zorder=2)
        axes.errorbar(
            places,
            [_agreement(section) for section in sections],
            yerr=list(zip(*[_arms(section) for section in sections], strict=True)),
            fmt="none",
            ecolor=_INK,
            elinewidth=1,
            capsize=3,
            zorder=3,
        )
        majority = [section.majority.value if section.majority else 0.0 for section in sections]
        axes.scatter(places, majority, marker="_", s=500, color=_RIGHT, linewidths=2, label="majority", zorder=4)
        axes.set_xticks(places, [f"{section.name}\nn {section.n}" for section in sections])
        axes.set_xlabel(f"{report.right.name}'s margin between its two best answers")
        _share_axis(axes, "y", "same top answer")
        axes.legend(loc="upper left", bbox_to_anchor=(0, 1.16))
    return svg()


def reliability_diagram(report: Report) -> str | None:
    """Mean probability against what it should have been, a point per bin, its area by count."""
    series = [
        ("right", f"{report.left.name} against {report.right.name}", _LEFT, "o"),
        ("reference", f"{report.left.name} against references", "#1d9a6c", "s"),
        ("right_reference", f"{report.right.name} against references", _RIGHT, "^"),
    ]
    if not any(report.reliability[key] for key, *_ in series):
        return None
    with _figure("reliability", height=4.0) as (axes, svg):
        axes.plot([0, 1], [0, 1], color=_QUIET, linestyle="--", linewidth=1, zorder=1)
        for key, label, colour, marker in series:
            bins = report.reliability[key]
            if bins:
                largest = max(bin_.n for bin_ in bins)
                x, y = [bin_.probability for bin_ in bins], [bin_.target for bin_ in bins]
                axes.plot(x, y, color=colour, linewidth=1.3, alpha=0.7, zorder=2)
                sizes = [18 + 90 * bin_.n / largest for bin_ in bins]
                axes.scatter(x, y, s=sizes, color=colour, marker=marker, label=label, alpha=0.85, zorder=3)
        _share_axis(axes, "x", "probability given (bin mean)")
        _share_axis(axes, "y", "what it should have been")
        legend = axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=1)
        for handle in legend.legend_handles:
            handle.set_sizes([40])
    return svg()


def latency_distribution(report: Report) -> str | None:
    """Cumulative share of requests by milliseconds, with the percentiles marked."""
    if report.latency is None or not report.latencies_ms:
        return None
    values = sorted(report.latencies_ms)
    with _figure("latency", height=3.0) as (axes, svg):
        shares = [(number + 1) / len(values) for number in range(len(values))]
        axes.step([values[0], *values], [0.0, *shares], where="post", color=_LEFT, linewidth=1.8)
        for name, share in (("p50", 0.5), ("p95", 0.95)):
            at = getattr(report.latency, name)
            axes.plot([at, at], [0, share], color=_QUIET, linewidth=1)
            axes.annotate(f"{name} {at:.0f} ms", (at, share), (6, -12), textcoords="offset points", fontsize=9)
        axes.set_xlim(left=0)
        axes.set_xlabel("milliseconds per request, as the client saw it")
        _share_axis(axes, "y", "requests answered")
    return svg()


def agreement_by_workflow(report: Report) -> str | None:
    """A bar per workflow with its interval, and the majority baseline."""
    sections = [section for section in report.breakdowns["workflow"] if section.estimate("agreement") is not None][::-1]
    if not sections:
        return None
    with _figure("workflow", height=1.2 + 0.42 * len(sections)) as (axes, svg):
        places = range(len(sections))
        axes.barh(places, [_agreement(section) for section in sections], color=_LEFT, height=0.58, zorder=2)
        axes.errorbar(
            [_agreement(section) for section in sections],
            places,
            xerr=list(zip(*[_arms(section) for section in sections], strict=True)),
            fmt="none",
            ecolor=_INK,
            elinewidth=1,
            capsize=3,
            zorder=3,
        )
        majority = [section.majority.value if section.majority else 0.0 for section in sections]
        axes.scatter(majority, places, marker="|", s=220, color=_RIGHT, linewidths=2, label="majority", zorder=4)
        axes.set_yticks(places, [f"{section.name}  (n {section.n})" for section in sections])
        _share_axis(axes, "x", "same top answer")
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1))
    return svg()


@contextmanager
def _figure(name: str, *, height: float) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Axes to draw on, and a function that gives the SVG afterwards. The same report gives the same bytes."""
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=(6.2, height), layout="constrained")
        axes = figure.subplots()
        axes.grid(color="#eceff4", linewidth=0.8, zorder=0)
        axes.set_axisbelow(True)
        written = io.StringIO()
        yield axes, written.getvalue
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = written.getvalue()
        written.seek(0)
        written.truncate()
        written.write(text[text.index("<svg") :])


def _share_axis(axes: Any, which: str, label: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xlim if which == "x" else axes.set_ylim)(0, 1.02)
    axis.set_major_formatter(mpl.ticker.PercentFormatter(1.0, decimals=0))
    (axes.set_xlabel if which == "x" else axes.set_ylabel)(label)


def _agreement(section: Section) -> float:
    estimate = section.estimate("agreement")
    return estimate.value if estimate is not None else 0.0


def _arms(section: Section) -> tuple[float, float]:
    estimate = section.estimate("agreement")
    assert estimate is not None
    return max(0.0, estimate.value - estimate.low), max(0.0, estimate.high - estimate.value)
