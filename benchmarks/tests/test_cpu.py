"""The CPU comparison compares the same answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cpu


def test_all_ways_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "OTHERS_SHARE", 1.0)  # whatever else a test machine does
    out = tmp_path / "cpu.json"
    small = ["--rounds", "1", "--state", "20", "--threads", "1", "--dtype", "float32"]
    assert cpu.main([*small, "--json", str(out)]) == 0
    kept = json.loads(out.read_text())
    assert [row["steps"] for row in kept["steps"]] == [1, 2]
    for row in kept["steps"]:
        assert max(row["largest_difference_nats"].values()) < 1e-3
        assert all(np.isfinite(times["median"]) for times in row["ms"].values())


def test_padding_is_on_the_left() -> None:
    tokens, mask = cpu._left_padded([np.array([5, 6], np.int32), np.array([7], np.int32)])
    assert tokens.tolist() == [[5, 6], [0, 7]]
    assert mask.tolist() == [[1, 1], [0, 1]]
    with pytest.raises(ValueError, match="max"):
        cpu._left_padded([])
