"""The CPU comparison compares the same answers."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from openjev_server.engine.int8 import probe

from benchmarks import cpu
from benchmarks.cpu_agreement import Pair, spread_rows, summary


def test_all_ways_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "OTHERS_SHARE", 1.0)  # whatever else a test machine does
    out = tmp_path / "cpu.json"
    small = ["--rounds", "1", "--state", "20", "--threads", "1", "--dtype", "float32"]
    assert cpu.main([*small, "--json", str(out)]) == 0
    kept = json.loads(out.read_text())
    assert [row["steps"] for row in kept["steps"]] == [1, 2]
    assert kept["product_gflops"]["float32"] > 0
    for row in kept["steps"]:
        assert max(row["largest_difference_nats"].values()) < 1e-3
        assert all(np.isfinite(times["median"]) for times in row["ms"].values())
        assert probe() is None or 0 < row["int8_largest_difference_nats"] < 1


def test_padding_is_on_the_left() -> None:
    tokens, mask = cpu._left_padded([np.array([5, 6], np.int32), np.array([7], np.int32)])
    assert tokens.tolist() == [[5, 6], [0, 7]]
    assert mask.tolist() == [[1, 1], [0, 1]]
    with pytest.raises(ValueError, match="max"):
        cpu._left_padded([])


def test_changed_answers_are_counted_with_how_sure_float32_was() -> None:
    sure, unsure = np.array([0.9, 0.1]), np.array([0.51, 0.49])
    pairs = [Pair("noul", sure, sure), Pair("noul", unsure, unsure[::-1]), Pair("score", np.ones(1), np.ones(1))]
    found = summary(pairs)
    assert (found["rows"], found["same_answer"], found["share"]) == (3, 2, 0.6667)
    assert found["largest_margin_lost_nats"] == pytest.approx(np.log(51 / 49), abs=1e-3)
    assert (found["rows_of_margin_0.1_nats"], found["same_answer_of_those"]) == (2, 2)


def test_rows_are_spread_over_the_tasks(tmp_path: Path) -> None:
    lines = [json.dumps({"task": task, "n": n}) for task, count in (("a", 5), ("b", 1), ("c", 2)) for n in range(count)]
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(lines).encode()))
    taken = [(row["task"], row["n"]) for row in spread_rows(path, 6)]
    assert taken == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("c", 1), ("a", 2)]
