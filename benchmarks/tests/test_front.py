"""The host time of the front in its tiny form: every stage and every request over HTTP has a figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("triton")

from benchmarks import front


def test_every_stage_is_timed(tmp_path: Path) -> None:
    out = tmp_path / "front.json"
    assert front.main(["--tiny", "--json", str(out)]) == 0
    kept = json.loads(out.read_text())
    assert [row["questions"] for row in kept["stages_us"]] == [1, 5]
    assert all(value > 0 for row in kept["stages_us"] for value in row.values())
    assert [(row["questions"], row["warm"]) for row in kept["http"]] == [(1, False), (1, True), (5, False), (5, True)]
    assert all(row["p50_ms"] >= row["engine_p50_ms"] > 0 for row in kept["http"])
