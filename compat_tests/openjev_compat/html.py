"""The report as one self-contained HTML page."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from . import plots, wording
from .decision import Decision
from .report import Disagreement, Report

__all__ = ["html_page"]

_SHOWN_DISAGREEMENTS = 200
_SHOWN_OPTIONS = 8
_SHOWN_CHARACTERS = 4000


def html_page(report: Report) -> str:
    """The page: numbers, plots, and the two hundred clearest disagreements with what text there is."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(files(__package__).joinpath("report.html.j2").read_text(encoding="utf-8"))
    drawn = [
        ("Agreement by margin", plots.agreement_by_margin(report)),
        ("Reliability", plots.reliability_diagram(report)),
        ("By workflow", plots.agreement_by_workflow(report)),
        ("Latency", plots.latency_distribution(report)),
    ]
    return template.render(
        report=report,
        wording=wording,
        plots=[(title, Markup(svg)) for title, svg in drawn if svg is not None],  # our own SVG
        disagreements=[_row(row) for row in report.disagreements[:_SHOWN_DISAGREEMENTS]],
        lines=[
            line
            for line in (
                wording.mcnemar_line(report.mcnemar, report) if report.mcnemar else None,
                wording.latency_line(report.latency) if report.latency else None,
                wording.price_line(report.cost) if report.cost else None,
                wording.excluded_line(report),
            )
            if line is not None
        ],
    )


def _row(row: Disagreement) -> dict[str, Any]:
    question = row.question or {}
    return {
        "id": row.id,
        "type": row.type,
        "margin": row.margin,
        "left": row.left.label,
        "right": row.right.label,
        "reference": row.reference,
        "bars": _bars(row.left, row.right),
        "instructions": _text(question.get("instructions")),
        "criteria": _text(question.get("criteria")),
        "state": _text(row.state),
    }


def _bars(left: Decision, right: Decision) -> list[tuple[str, float | None, float | None]]:
    """Label and both probabilities, the likeliest on either side first."""
    theirs, ours = right.probabilities or {}, left.probabilities or {}
    labels = dict.fromkeys([*theirs, *ours, *(label for label in (right.label, left.label) if label is not None)])
    ordered = sorted(labels, key=lambda label: -max(theirs.get(label, 0.0), ours.get(label, 0.0)))
    shown = ordered[:_SHOWN_OPTIONS]
    return [
        (
            label,
            ours.get(label, 0.0) if left.probabilities is not None else None,
            theirs.get(label, 0.0) if right.probabilities is not None else None,
        )
        for label in shown
    ]


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + f" … ({len(text):,} characters)"
