"""The table of targets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openjev_training.marks import fill, marked
from openjev_training.targets import Measured, as_markdown, read_results, target_lines

RESULTS = Path(__file__).parents[1] / "results"


def _macro(value: float, **more: float) -> dict[str, float]:
    return {"step 1": value, "step 2": value, "majority": 0.4, "mae": 0.6, "ece": 0.2, "rows": 1000, **more}


def _summary(value: float) -> dict[str, Any]:
    kinds = {f"macro {kind}": _macro(value) for kind in ("choice", "noul", "score")}
    return {"held-out": kinds, "test": kinds, "routing": kinds, "sensitivity": {"order": {"choice": 0.05}}}


@pytest.fixture
def measured() -> Measured:
    low, high = _summary(0.5), _summary(0.9)
    calibration = {kind: {"rows": 4000, "before": 0.2, "after": 0.05} for kind in ("choice", "noul", "score")}
    names = ("held_out", "shipped", "probe", "embedding", "sparrow", "latency", "flips")
    return Measured(high, high, low, low, low, calibration, 900.0, 41.0, dict.fromkeys(names, "x.json"))


def test_everything_above_its_target_is_met(measured: Measured) -> None:
    lines = target_lines(measured)
    assert {line.met for line in lines} == {True, None}
    assert [line.measure for line in lines if line.met is None] == [
        "latency: 500-token state, 5 questions, 2 steps, 2 threads"
    ]


def test_each_target_can_be_missed(measured: Measured) -> None:
    bad = replace(measured, held_out=_summary(0.45), shipped=_summary(0.45), megabytes=46)
    met = {line.measure: line.met for line in target_lines(bad)}
    assert sum(value is False for value in met.values()) == 8
    assert met["held-out score, mean absolute error"] is True


def test_few_rows_decide_nothing_about_calibration_and_none_are_not_measured(measured: Measured) -> None:
    few = {"choice": {"rows": 999, "before": 0.2, "after": 0.01}}
    lines = {x.measure: x for x in target_lines(replace(measured, calibration=few))}
    assert lines["held-out ECE after calibration, choice, a task left out"].met is None
    assert lines["held-out ECE after calibration, score, a task left out"].value == "not measured"


def test_a_worse_second_step_is_a_miss(measured: Measured) -> None:
    summary = _summary(0.9)
    summary["held-out"] = {**summary["held-out"], "macro noul": _macro(0.9) | {"step 2": 0.89}}
    (line,) = (x for x in target_lines(replace(measured, held_out=summary)) if x.measure.startswith("two steps"))
    assert (line.met, line.value) == (False, "choice +0.000, yes/no -0.010, score +0.000")


def test_the_committed_results_give_the_table(tmp_path: Path) -> None:
    weights = tmp_path / "w"
    weights.write_bytes(b"x" * 1000)
    text = as_markdown(target_lines(read_results(RESULTS, latency=tmp_path / "none.json", weights=weights)))
    held_out = json.loads((RESULTS / "held-out.json").read_text())
    assert f"| .{held_out['held-out']['macro choice']['step 2'] * 1000:.0f} |" in text
    assert "not measured" in text


def test_the_notes_have_the_table_of_the_committed_results(shipped: Path, tmp_path: Path) -> None:
    """Latency apart, which another command measures."""
    found = read_results(RESULTS, latency=tmp_path / "none.json", weights=shipped / "model.q4.safetensors")
    noted = marked(RESULTS.parent / "NOTES.md", "targets").splitlines()
    made = as_markdown(target_lines(found)).splitlines()
    assert [x for x in noted if "latency" not in x] == [x for x in made if "latency" not in x]


def test_marks_keep_what_is_around_them() -> None:
    text = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n"
    assert fill(text, "x", "new\n") == "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n"
    with pytest.raises(ValueError, match="y:begin"):
        fill(text, "y", "new")
