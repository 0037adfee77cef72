"""Measures checkpoints anew, through the server's engine on the CPU, in place of the committed results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from .evaluate import Served, evaluate
from .metrics import summary
from .prepare import load_measures
from .targets import Measured

__all__ = ["remeasured"]


def remeasured(
    found: Measured, prepared: Path, held_out: Path | None, shipped: Path, *, rows: int, threads: int | None
) -> Measured:
    """At most `rows` rows of each task: `test` of what ships; held-out tasks and routing of a held-out checkpoint.

    Flip rates, calibration and the baselines stay the committed ones.
    """
    measures = load_measures(prepared)
    note = f"measured now, {rows} rows a task"
    records, _ = evaluate(Served(shipped, threads=threads), {"test": measures["test"]}, rows=rows)
    sources = {**found.sources, "shipped": note}
    found = replace(found, shipped={**found.shipped, **summary(records)}, sources=sources)
    if held_out is None:
        return found
    asked = {name: measures[name] for name in ("held-out", "routing")}
    records, _ = evaluate(Served(held_out, threads=threads), asked, rows=rows)
    sources = {**sources, "held_out": note}
    return replace(found, held_out={**found.held_out, **summary(records)}, sources=sources)
