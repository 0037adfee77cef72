"""How often top answers of a given probability are right, on held-out tasks, as read and calibrated."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from openjev_server.calibration.kinds import KINDS
from openjev_server.calibration.report import BINS, apply
from openjev_server.calibration.scalings import Float

from .calibrate import nested_scalings, rows_of
from .predict import Record

__all__ = ["AFTER", "BEFORE", "Bins", "Reliability", "equal_mass", "read_bins", "reliability", "write_bins"]

BEFORE, AFTER = "before", "a task left out"
STEPS = 2

Bins = list[tuple[int, float, float]]
"""(rows, mean probability of the top answer, share of right ones), by probability."""
Reliability = Mapping[str, Mapping[str, Bins]]
"""By question type, then `BEFORE` and `AFTER`."""


def equal_mass(confidence: Float, right: Float, bins: int = BINS) -> Bins:
    """As `ece` cuts them: bins of equally many rows (Nguyen & O'Connor 2015)."""
    parts = np.array_split(np.argsort(confidence, kind="stable"), bins)
    return [
        (len(part), round(float(confidence[part].mean()), 4), round(float(right[part].mean()), 4))
        for part in parts
        if len(part)
    ]


def reliability(records: Sequence[Record]) -> Reliability:
    """Of two-step answers to held-out tasks. Calibrated ones with a map that comes from the other tasks alone.

    Raises ValueError unless every type has two held-out tasks.
    """
    out: dict[str, dict[str, Bins]] = {}
    for kind in KINDS:
        held_out, cal = (rows_of(records, measure, kind, STEPS) for measure in ("held-out", "cal"))
        if len(held_out) < 2:
            raise ValueError(f"{len(held_out)} held-out tasks of type {kind}: leaving one out needs two")
        nested = nested_scalings(held_out, cal, kind)
        out[kind] = {}
        for name in (BEFORE, AFTER):
            confidence, right = [], []
            for task, rows in held_out.items():
                answers = apply(None if name == BEFORE else nested[task], rows)
                confidence += [p.max() for p in answers]
                right += [row.target[p.argmax()] for row, p in zip(rows, answers, strict=True)]
            out[kind][name] = equal_mass(np.array(confidence), np.array(right))
    return out


def write_bins(path: Path, found: Reliability) -> None:
    path.write_text(json.dumps(found, indent=None, separators=(",", ":")).replace("]],", "]],\n") + "\n")


def read_bins(path: Path) -> Reliability:
    """Raises OSError without the file."""
    return {
        kind: {name: [(n, c, r) for n, c, r in bins] for name, bins in parts.items()}
        for kind, parts in json.loads(path.read_text()).items()
    }
