"""The plots of the notes and the model card, as SVG files that come out the same for the same numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from .reliability import AFTER, BEFORE, Reliability

__all__ = ["draw_reliability", "draw_training"]

_TYPES = {"choice": ("choice", "#2f6fde"), "noul": ("yes/no", "#e07b39"), "score": ("score", "#3f9a63")}
_PHASES = {
    "probe": ("probe recipe", "#8a93a3"),
    "held-out": ("held-out", "#2f6fde"),
    "everything": ("everything", "#e07b39"),
}
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "openjev",
    "font.family": "sans-serif",
    "font.sans-serif": ["Arial", "Helvetica", "DejaVu Sans"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
}
_AFTER_PHASE = {"everything": "held-out"}
"""A phase that went on from another's weights."""


def draw_training(results: Path, out: Path) -> None:
    """Losses by tokens, and accuracies at the end of each phase, the only points where they were measured.

    Reads `log.jsonl` and the phases' summaries. Raises OSError where one is missing.
    """
    events = [json.loads(line) for line in (results / "log.jsonl").read_text().splitlines()]
    ends = {e["phase"]: float(e["millions"]) for e in events if e["event"] == "end"}
    offset = {phase: ends.get(_AFTER_PHASE.get(phase, ""), 0.0) for phase in ends}
    with _figure(out, columns=3, width=11) as axes:
        for key, place, title in (("slot", axes[0], "loss of the answer"), ("text", axes[1], "loss of plain text")):
            for phase, (label, colour) in _PHASES.items():
                steps = [e for e in events if e["event"] == "step" and e["phase"] == phase]
                tokens = [offset[phase] + e["millions"] for e in steps]
                place.plot(tokens, [e[key] for e in steps], color=colour, label=label, linewidth=1.4)
            place.set(title=f"{title}, nats", xlabel="million tokens", ylim=(0, None))
            place.legend()
        for phase in _PHASES:
            unseen = phase != "everything"  # which was trained on the held-out tasks
            summary = json.loads((results / f"{phase}.json").read_text())
            end = offset[phase] + ends[phase]
            for kind, (_, colour) in _TYPES.items():
                value = summary["held-out"][f"macro {kind}"]["step 2"]
                if unseen:
                    axes[2].plot(end, value, "o", color=colour, markersize=7)
                axes[2].plot(end, summary["test"][f"macro {kind}"]["step 2"], "s", color=colour, fillstyle="none")
            axes[2].annotate(_PHASES[phase][0], (end, 0.415 if unseen else 0.45), ha="center", fontsize=9)
        for label, colour in _TYPES.values():
            axes[2].plot([], [], "-", color=colour, label=label)
        axes[2].plot([], [], "o", color="#39414f", label="held-out tasks")
        axes[2].plot([], [], "s", color="#39414f", fillstyle="none", label="test rows, trained tasks")
        axes[2].set(title="accuracy at the end of a phase", xlabel="million tokens", xlim=(0, 460), ylim=(0.4, 1))
        axes[2].legend(ncols=2, loc="upper left", columnspacing=1, handletextpad=0.5)


def draw_reliability(found: Reliability, out: Path) -> None:
    """One panel a question type: share of right answers against probability, in bins of equally many rows."""
    with _figure(out, columns=3, width=11) as axes:
        for place, (kind, (label, colour)) in zip(axes, _TYPES.items(), strict=True):
            place.plot([0, 1], [0, 1], color="#b6bdc9", linewidth=1, linestyle="--")
            for name, style in ((BEFORE, "o:"), (AFTER, "o-")):
                bins = found[kind][name]
                face = "white" if name == BEFORE else colour
                text = "as read" if name == BEFORE else "calibrated, a task left out"
                confidence, right = [b[1] for b in bins], [b[2] for b in bins]
                place.plot(confidence, right, style, color=colour, markerfacecolor=face, markersize=5, label=text)
            rows = sum(b[0] for b in found[kind][BEFORE])
            place.set(
                title=f"{label}, {rows:,} rows", xlabel="probability of the top answer", xlim=(0.2, 1), ylim=(0, 1)
            )
            place.legend(loc="lower right")
        axes[0].set_ylabel("share that is right")


@contextmanager
def _figure(out: Path, *, columns: int, width: float) -> Iterator[Any]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, 3.6), layout="constrained")
        yield figure.subplots(1, columns)
        figure.savefig(out, format=out.suffix[1:], metadata={"Date": None} if out.suffix == ".svg" else None)
