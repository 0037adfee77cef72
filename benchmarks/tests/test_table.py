"""README's performance tables show the kept figures, and nothing that was not measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import http_suite, replay408
from benchmarks.results import write_json
from benchmarks.table import RESULTS, section


def _keep(root: Path, name: str, value: dict[str, Any]) -> None:
    write_json(root / RESULTS / name, value)


def test_nothing_measured_shows_nothing(tmp_path: Path) -> None:
    assert section(tmp_path) == ""
    _keep(tmp_path, "replay408-rule.json", {"tiny": True})
    assert section(tmp_path) == ""


def test_what_the_commands_keep_fills_the_tables(tmp_path: Path) -> None:
    replay, suite = tmp_path / "replay.json", tmp_path / "suite.json"
    replay408.main(["--tiny", "--device", "cpu", "--runs", "1", "--rows", "c,e4", "--json", str(replay)])
    http_suite.main(["--tiny", "--device", "cpu", "--json", str(suite), "--parts", "latency_gpu,interleave,prefix"])
    rows = json.loads(replay.read_text())
    rows["rows"]["b"] = {"failed": "out of memory"}
    _keep(tmp_path, "replay408-rule.json", rows | {"tiny": False})
    _keep(tmp_path, "http_suite.json", json.loads(suite.read_text()) | {"tiny": False})
    text = section(tmp_path)
    assert "| grouped: the same 56 canvases, 2 steps | failed |" in text
    assert f"| {rows['rows']['c']['seconds']['median']:.2f} |" in text
    assert "| 10 questions, 2 steps |" in text
    assert "beside 32,000-token requests" in text


def test_cpu_rows_say_whether_tiles_were_used(tmp_path: Path) -> None:
    times = {way: {"median": 100.4} for way in ("ours", "repeated", "padded_batch", "expanded_cache")}
    kept = {"machine": {"device": "X", "threads": 2, "amx": True}, "isa": "as the processor has it"}
    kept |= {"steps": [{"steps": 1, "ms": times}]}
    _keep(tmp_path, "cpu-amx.json", kept)
    eight = {"steps": 1, "ms": times | {way: {"median": 80.2} for way in ("int8", "int8_repeated")}}
    agreement = [{"steps": 1, "rows": 1000, "share": 0.9876}]
    _keep(
        tmp_path,
        "cpu-no-amx.json",
        kept | {"isa": "AVX512_CORE_BF16", "steps": [eight], "int8_agreement": agreement},
    )
    text = section(tmp_path)
    assert "X, 2 threads, AMX on, 1 step | 100 ms |" in text
    assert "X, 2 threads, AMX off (AVX512_CORE_BF16), 1 step | 100 ms |" in text
    assert "1 step, int8 | 80 ms | 80 ms | 100 ms | 100 ms | 98.8% of 1,000 |" in text


def test_correctness_has_a_row_for_each_checkpoint_and_quantised_form(tmp_path: Path) -> None:
    checked = {
        "engine": "cuda:0 bfloat16, fused kernels",
        "reference": {
            "engine": "cuda:0 float32, plain PyTorch",
            "slots": 1000,
            "relative_error_median": 0.00251,
            "relative_error_p99": 0.0112,
            "relative_error_max": 0.0191,
            "flips_above_margin": 0,
            "share_above_margin": 0.912,
        },
        "packing": {"probability_change_max": 0.004},
        "soak": {"answered": 999, "requests": 1000},
    }
    moved = {f"probability_change_{which}": 0.25 for which in ("median", "p99", "max")}
    moved |= {"slots": 1000, "flip_share": 0.0123, "flip_share_above_margin": 0.001}
    models = {"nano": checked | {"drift": {"int4": moved}}, "broken": {"failed": "...", "missed": ["failed"]}}
    _keep(tmp_path, "gpu_check.json", {"machine": {"device": "X"}, "models": models})
    text = section(tmp_path)
    assert "| 0.0025 / 0.011 / 0.019 | 0 | 91% | 0.004 | 999 of 1,000 |" in text
    assert "| nano, int4 | 1,000 | 0.25 / 0.25 / 0.25 | 1.23% | 0.10% |" in text
    assert "| broken: failed |" in text
