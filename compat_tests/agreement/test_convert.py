"""The committed conversions come from the committed recordings, and hold everything in them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from openjev_compat.convert import convert_recorded
from openjev_compat.store import load_fixtures
from openjev_server.wire.confidence import choice_confidence, expected_score, score_confidence

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDED = sorted((FIXTURES / "recorded").glob("*.json"))


def test_every_recording_is_converted() -> None:
    assert len(RECORDED) == 10
    for path in RECORDED:
        converted = [fixture.to_line() for fixture in convert_recorded(path)]
        committed = (FIXTURES / "jev" / f"{path.stem}.jsonl").read_text(encoding="utf-8").splitlines()
        assert converted == committed, path.stem


def test_what_the_recordings_hold() -> None:
    fixtures = load_fixtures([FIXTURES / "jev" / f"{path.stem}.jsonl" for path in RECORDED])
    assert len(fixtures) == 296
    kinds = Counter(fixture.type for fixture in fixtures)
    distributions = [fixture for fixture in fixtures if "probabilities" in fixture.answer]
    assert kinds["noul"] == 173
    assert len(distributions) == 103
    assert sum("confidence" in fixture.answer for fixture in distributions) == 83


def test_texts_without_a_licence_are_not_here() -> None:
    for fixture in load_fixtures([FIXTURES / "jev", FIXTURES / "seed"]):
        unlicensed = "ag-news" in fixture.workflow or fixture.workflow.startswith(("public-evals/", "every-lab/"))
        assert (fixture.request is None) == unlicensed


def test_confidence_and_score_of_every_recorded_distribution_follow_the_formulas() -> None:
    fixtures = load_fixtures([FIXTURES / "jev" / f"{path.stem}.jsonl" for path in RECORDED])
    worst, checked = 0.0, 0
    for fixture in fixtures:
        answer = fixture.answer
        if "confidence" not in answer:
            continue
        checked += 1
        shares = list(answer["probabilities"].values())
        assert sum(shares) == pytest.approx(1.0, abs=1e-9), fixture.id
        confidence = choice_confidence(shares) if fixture.type == "choice" else score_confidence(shares)
        worst = max(worst, abs(confidence - answer["confidence"]))
        if fixture.type == "score":
            worst = max(worst, abs(expected_score(shares) - answer["score"]))
        else:
            assert answer["choice"] == max(answer["probabilities"], key=answer["probabilities"].__getitem__)
    assert checked == 83
    assert 0.0 < worst <= 0.0101


def test_every_file_is_in_the_index() -> None:
    index = (FIXTURES / "INDEX.md").read_text(encoding="utf-8")
    for directory in ("jev", "seed"):
        for path in (FIXTURES / directory).glob("*.jsonl"):
            assert f"| {path.name} |" in index, path.name
