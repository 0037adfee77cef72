"""The benchmarks over HTTP in their tiny form: on a server of their own, with every figure that a table shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import http_suite
from benchmarks.load import percentile
from benchmarks.server import ServerFailed, running_server


def test_every_part_measures_and_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "suite.json"
    assert http_suite.main(["--tiny", "--device", "cpu", "--json", str(out)]) == 0
    kept = json.loads(out.read_text())
    assert all(row["p50_ms"] > 0 for row in kept["latency_gpu"]["rows"])
    assert all(row["failures"] == 0 and row["judgments_per_s"] > 0 for row in kept["throughput"]["rows"])
    assert kept["throughput"]["canvas_tokens_grouped"] == 64
    assert [row["questions"] for row in kept["scaling"]["questions"]] == [1, 5, 20]
    assert kept["interleave"]["large_failed"] == []
    assert len(kept["prefix"]["turn_ms"]) == 3


def test_a_server_that_ends_says_why() -> None:
    with pytest.raises(ServerFailed, match="No model"), running_server(model="nothing-of-that-name"):
        pass


def test_percentiles_interpolate() -> None:
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 0.75, 1.0)] == [1.0, 2.0, 2.5, 3.0]
