"""Reliability bins and the plots."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from openjev_server.calibration.report import ece
from openjev_training.plots import draw_reliability, draw_training
from openjev_training.reliability import AFTER, BEFORE, equal_mass, read_bins, reliability, write_bins

RESULTS = Path(__file__).parents[1] / "results"
KEPT = RESULTS / "reliability.json"


def test_bins_have_the_calibration_error() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.random(400)
    right = (rng.random(400) < 0.5).astype(float)
    bins = equal_mass(confidence, right)
    assert [n for n, _, _ in bins] == [27] * 10 + [26] * 5
    assert sum(n * abs(c - r) for n, c, r in bins) / 400 == pytest.approx(ece(confidence, right), abs=1e-4)


def test_the_kept_bins_are_those_of_the_calibration_report() -> None:
    report = json.loads((RESULTS / "calibration.json").read_text())["2 steps"]
    for kind, parts in read_bins(KEPT).items():
        for name, other in ((BEFORE, "before"), (AFTER, "after, a task left out")):
            rows = sum(n for n, _, _ in parts[name])
            error = sum(n * abs(c - r) for n, c, r in parts[name]) / rows
            assert rows == report[kind][other]["rows"]
            assert error == pytest.approx(report[kind][other]["ece"], abs=2e-4)


def test_bins_are_read_as_written(tmp_path: Path) -> None:
    write_bins(tmp_path / "b.json", read_bins(KEPT))
    assert (tmp_path / "b.json").read_text() == KEPT.read_text()


def test_one_task_of_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="0 held-out tasks of type choice"):
        reliability([])


def test_plots_come_out_the_same_and_small(tmp_path: Path) -> None:
    for name in ("log.jsonl", "probe.json", "held-out.json", "everything.json"):
        shutil.copy(RESULTS / name, tmp_path)
    draws = {
        "training.svg": lambda out: draw_training(tmp_path, out),
        "reliability.svg": lambda out: draw_reliability(read_bins(KEPT), out),
    }
    for name, draw in draws.items():
        draw(tmp_path / "one.svg")
        draw(tmp_path / "two.svg")
        text = (tmp_path / "one.svg").read_text()
        assert text == (tmp_path / "two.svg").read_text()
        assert len(text) < 60_000
        assert "million tokens" in text or "share that is right" in text
        assert (RESULTS / name).stat().st_size < 60_000
