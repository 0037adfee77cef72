"""The generated case files carry the recorded ids, types and answers, and documents of the recorded lengths."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from claims import ROOT
from openjev_compat.cases import import_cases
from openjev_compat.decision import decide
from openjev_compat.public_cases import read_cases, read_recorded
from openjev_compat.reproduce import MODES


def test_generated_cases_are_the_recorded_questions(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "benchmarks" / "make_cases.py"), str(tmp_path)]
    subprocess.run(script, check=True, capture_output=True, timeout=120)
    recorded = read_recorded(ROOT / "fixtures", [mode.seed_run for mode in MODES.values() if mode.seed_run])
    cases = read_cases(tmp_path, recorded.jev)
    assert len(cases.asks) == 46
    assert set(cases.jev) == set(recorded.jev)
    assert len(recorded.jev) == 408
    assert cases.changed == 0
    for file in tmp_path.glob("*-cases.js"):
        for fixture in import_cases(file, recorded_at="2026-12-02")["typesafe:v13_snowy_elephant"]:
            assert fixture.answer == recorded.jev[fixture.id].answer
            assert fixture.reference == pytest.approx(recorded.jev[fixture.id].reference)
            for run in recorded.seed.values():
                label = decide(run[fixture.id], fixture.allowed).label
                assert label in fixture.allowed, "an answer of the seed that the question does not allow"
    # 4.3 characters a token. The documents of 46 nodes; five of them are long and were read in 16 of 56 canvases.
    assert 90_000 < sum(len(str(ask.state)) for ask in cases.asks) / 4.3 < 160_000
