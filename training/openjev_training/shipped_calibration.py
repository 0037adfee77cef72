"""The calibrations that OpenJev ships for the released DiffusionGemma, from numbers that its seed recorded.

Yes/no answers at one and at four steps, six questions on one canvas, under the seed's own wording, against what Jev
answered to the same questions. Nobody here has the weights, so the file is bound to the hub id and commit that the
numbers were recorded with, and to the template of this repository that asks alike in words of its own: whether our
probabilities are those of the recording is not known. Choices and scores were recorded without probabilities.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from openjev_server.calibration.files import CalibrationFile, Entry, Released, Scalings
from openjev_server.calibration.fit import fit_platt, fit_temperature
from openjev_server.calibration.report import Interval, Row, apply, bootstrap, scores
from openjev_server.calibration.scalings import TemperatureScaling
from openjev_server.calibration.select import group_folds
from openjev_server.canvas.templates import SEED
from openjev_server.engine.released import DIFFUSIONGEMMA_26B_A4B, PINNED_REVISIONS

__all__ = ["read_pairs", "write_shipped"]

FLOOR = 2.0**-25
"""Half of what separates 1 from the next float32 below: at four steps 58 of 192 answers are saturated there."""
JEV_FLOOR = 0.005
"""Jev's answers are recorded at 0.01."""
STEPS = (1, 4)
FILE = "diffusiongemma-26b-a4b-seed-1.json"


def read_pairs(recorded: Path, jev: Path, steps: int) -> list[Row]:
    """Rows of the recorded answers at one number of steps, with Jev's probability of the same question as target.

    Both files are fixtures of this repository (`fixtures/seed/every_lab.jsonl`, `fixtures/jev/every_lab.jsonl`); the
    group is the document.
    """
    targets = {line["id"]: float(line["answer"]["noul"]) for line in _lines(jev)}
    rows = []
    for line in _lines(recorded):
        if line["steps"] != steps:
            continue
        p = np.array([line["answer"]["noul"], 1 - line["answer"]["noul"]])
        yes = min(max(targets[line["id"]], JEV_FLOOR), 1 - JEV_FLOOR)
        log_p = np.log(np.maximum(p, FLOOR))
        rows.append(Row("noul", ("true", "false"), log_p, np.array([yes, 1 - yes]), line["case"]))
    return rows


def write_shipped(recorded: Path, jev: Path, directory: Path) -> dict[str, Any]:
    """Writes the file; returns temperatures and errors, documents held out and intervals by document."""
    entries, report = [], {}
    for steps in STEPS:
        rows = read_pairs(recorded, jev, steps)
        scaling = fit_temperature([row.log_p for row in rows], [row.target for row in rows])
        kept = TemperatureScaling(temperature=round(scaling.temperature, 2))
        count = len({row.group for row in rows})
        entries.append(
            Entry(
                layout="grouped",
                steps=steps,
                floor=FLOOR,
                scalings=Scalings(noul=kept),
                fitted_on=f"{len(rows)} recorded answers on {count} documents, against Jev's probabilities",
            )
        )
        report[f"{steps} steps"] = _measured(rows, kept)
    file = CalibrationFile(
        model=DIFFUSIONGEMMA_26B_A4B,
        template=SEED.id,
        template_hash=SEED.hash,
        released=Released(model=DIFFUSIONGEMMA_26B_A4B, revision=PINNED_REVISIONS[DIFFUSIONGEMMA_26B_A4B]),
        entries=tuple(entries),
    )
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(file.model_dump(exclude_none=True), indent=1) + "\n"
    (directory / FILE).write_text(text, encoding="utf-8")
    return report


def _measured(rows: list[Row], kept: TemperatureScaling) -> dict[str, Any]:
    """Each document is scaled with what the documents of the other folds give."""
    after: list[Any] = [None] * len(rows)
    platt: list[Any] = [None] * len(rows)
    for fold in group_folds(rows):
        out = set(fold)
        log_p = [row.log_p for number, row in enumerate(rows) if number not in out]
        targets = [row.target for number, row in enumerate(rows) if number not in out]
        held = [rows[number] for number in fold]
        for found, fitter in ((after, fit_temperature), (platt, fit_platt)):
            for number, p in zip(fold, apply(fitter(log_p, targets), held), strict=True):
                found[number] = p
    (interval,) = bootstrap(
        [row.group for row in rows],
        [lambda chosen: fit_temperature([rows[i].log_p for i in chosen], [rows[i].target for i in chosen]).temperature],
        replicates=200,
    )
    return {
        "temperature": _shown(interval),
        "kept": kept.temperature,
        "rows": len(rows),
        "documents": len({row.group for row in rows}),
        "before": _all(rows, apply(None, rows)),
        "after, documents held out": _all(rows, after),
        "platt instead, documents held out": _all(rows, platt),
    }


def _all(rows: list[Row], answers: list[Any]) -> dict[str, list[float]]:
    found = scores(rows, answers)
    return {"log loss": _shown(found.log_loss), "ece": _shown(found.ece), "brier": _shown(found.brier)}


def _shown(interval: Interval) -> list[float]:
    return [round(x, 4) for x in (interval.value, interval.low, interval.high)]


def _lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
