"""The totals that the seed published, computed from its rows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from openjev_compat.fixture import Fixture
from openjev_compat.metrics import Thresholds
from openjev_compat.pairing import Selection, select
from openjev_compat.report import Report, build_report
from openjev_compat.store import load_fixtures

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUNS = ("1step", "grouped_1step", "grouped_2step")


@cache
def load(name: str) -> tuple[Fixture, ...]:
    return tuple(load_fixtures([FIXTURES / f"{name}.jsonl"]))


def compare(left: list[Fixture], right: str) -> Report:
    return build_report(left, load(f"jev/{right}"), names=("seed", "jev"), thresholds=Thresholds())


def seed(name: str) -> list[Fixture]:
    return list(load(f"seed/{name}"))


def hits(report: Report, metric: str) -> tuple[int | None, int]:
    estimate = report.overall.estimate(metric)
    assert estimate is not None
    return estimate.hits, estimate.n


@pytest.mark.parametrize(("run", "agree", "right"), list(zip(RUNS, (364, 353, 355), (298, 290, 296), strict=True)))
def test_public_evals(run: str, agree: int, right: int) -> None:
    report = compare(seed(f"public_evals_{run}"), "public_evals")
    assert hits(report, "agreement") == (agree, 408)
    assert hits(report, "accuracy_left") == (right, 337)
    assert hits(report, "accuracy_right") == (306, 337)
    assert hits(report, "validity") == (408, 408)
    assert report.excluded["without a reference"] == 54
    assert report.excluded["tied reference"] == 17


@pytest.mark.parametrize(
    ("run", "by_type", "by_workflow"),
    [
        ("1step", {"noul": 241, "score": 21, "choice": 102}, (40, 90, 211, 23)),
        ("grouped_1step", {"noul": 248, "score": 19, "choice": 86}, (40, 84, 209, 20)),
        ("grouped_2step", {"noul": 246, "score": 19, "choice": 90}, (41, 84, 210, 20)),
    ],
)
def test_public_evals_by_slice(run: str, by_type: dict[str, int], by_workflow: tuple[int, ...]) -> None:
    report = compare(seed(f"public_evals_{run}"), "public_evals")

    def agreed(dimension: str) -> dict[str, int | None]:
        estimates = {section.name: section.estimate("agreement") for section in report.breakdowns[dimension]}
        return {name: estimate.hits for name, estimate in estimates.items() if estimate is not None}

    assert agreed("type") == by_type
    assert tuple(agreed("workflow").values()) == by_workflow
    clear = sum(agreed("margin")[name] or 0 for name in ("0.50 to 0.75", "0.75 to 0.90", "0.90 to 1.00"))
    assert clear == {"1step": 327, "grouped_1step": 321, "grouped_2step": 323}[run]


@pytest.mark.parametrize(("steps", "agree"), [(1, 138), (4, 139)])
def test_every_lab(steps: int, agree: int) -> None:
    rows = seed("every_lab")
    voice = compare(select(rows, Selection(on="every-lab/customer-voice", steps=steps)), "every_lab")
    assert hits(voice, "agreement") == (agree, 144)
    code = compare(select(rows, Selection(on="every-lab/code-rag", steps=steps)), "every_lab")
    assert hits(code, "agreement") == (47, 48)
    assert hits(code, "accuracy_left") == (48, 48)


@pytest.mark.parametrize(("steps", "ece", "brier"), [(1, 0.1036, 0.0287), (4, 0.1137, 0.0344)])
def test_calibration_against_jev(steps: int, ece: float, brier: float) -> None:
    report = compare(select(seed("every_lab"), Selection(steps=steps)), "every_lab")
    for metric, expected in (("ece_right", ece), ("brier_right", brier)):
        estimate = report.overall.estimate(metric)
        assert estimate is not None
        assert estimate.value == pytest.approx(expected, abs=6e-5)
        assert estimate.low < estimate.value < estimate.high


@pytest.mark.parametrize("answer", ["true", "false"])
def test_one_changed_row_changes_the_totals(answer: str) -> None:
    rows = seed("public_evals_1step")
    number = next(
        number
        for number, row in enumerate(rows)
        if row.answer == {"type": "noul", "label": answer} and row.id.endswith("/outcome/handed_off")
    )
    before = compare(rows, "public_evals")
    other = {"true": "false", "false": "true"}[answer]
    rows[number] = replace(rows[number], answer={"type": "noul", "label": other})
    after = compare(rows, "public_evals")
    for metric in ("agreement", "accuracy_left"):
        (old, _), (new, _) = hits(before, metric), hits(after, metric)
        assert old is not None
        assert new is not None
        assert abs(old - new) == 1
    assert hits(before, "accuracy_right") == hits(after, "accuracy_right")


def test_always_false_is_the_majority_baseline() -> None:
    report = compare(seed("public_evals_1step"), "public_evals")
    noul = next(section for section in report.breakdowns["type"] if section.name == "noul")
    assert noul.majority is not None
    assert (noul.majority.hits, noul.majority.n) == (225, 264)
    assert noul.random is not None
    assert noul.random.value == 0.5
