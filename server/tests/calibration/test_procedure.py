"""From lines of data to a file: what is read, what is held out, and that nothing is scored on what it was fitted on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_server.calibration.data import DataError, Labelled, read_labelled
from openjev_server.calibration.files import CalibrationError, read_file
from openjev_server.calibration.procedure import calibrate_rows, write_entry
from openjev_server.calibration.report import Row, apply, bootstrap, ece, scores
from openjev_server.calibration.select import LEFT, choose_method, fit, group_folds, split, task_folds

FIXTURES = Path(__file__).parents[3] / "fixtures"
NOUL = {"type": "noul", "state": "s", "instructions": "urgent?", "gold": True}
CHOICE = {
    "type": "choice",
    "state": {"a": 1},
    "instructions": "team?",
    "criteria": {"x": None, "y": "why"},
    "gold": "y",
}
SCORE = {"type": "score", "state": "s", "instructions": "how?", "criteria": ["lo", "mid", "hi"], "gold": 2}


def read(path: Path, *lines: Any, by: str | None = None) -> list[Labelled]:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return read_labelled(path, by=by)[0]


def row(p: list[float], gold: int, group: str, task: str | None = None) -> Row:
    names = tuple(map(str, range(len(p))))
    return Row("noul" if len(p) == 2 else "choice", names, np.log(p), np.eye(len(p))[gold], group, task)


def overconfident(count: int, groups: int, seed: int = 0) -> list[Row]:
    """Yes/no rows that say .95 and are right in 70 %."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        p = [0.95, 0.05] if rng.random() < 0.5 else [0.05, 0.95]
        top = int(np.argmax(p))
        rows.append(row(p, top if rng.random() < 0.7 else 1 - top, str(number % groups), f"t{number % 3}"))
    return rows


def test_labels_and_shares_become_distributions(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    lines = [
        NOUL,
        {**NOUL, "gold": False},
        {**NOUL, "gold": None, "dist": 0.3},
        CHOICE,
        {**CHOICE, "dist": {"x": 0.5, "y": 1.5 / 3}},
        SCORE,
        {**SCORE, "dist": [0.2, 0.3, 0.5], "task": "t"},
    ]
    found = read(path, *lines)
    expected = [[1, 0], [0, 1], [0.3, 0.7], [0, 1], [0.5, 0.5], [0, 0, 1], [0.2, 0.3, 0.5]]
    for one, target in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.target, target)
    assert found[-1].task == "t"
    assert found[0].group == found[5].group != found[3].group


def test_groups_are_states_or_a_key(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    lines = [{**NOUL, "doc": 1}, {**NOUL, "doc": 2}, {**NOUL, "state": "other", "doc": 2}]
    a, b, c = (one.group for one in read(path, *lines))
    assert a == b != c
    a, b, c = (one.group for one in read(path, *lines, by="doc"))
    assert a != b == c
    with pytest.raises(DataError, match=r"d\.jsonl:2: has no 'doc'"):
        read(path, {**NOUL, "doc": 1}, NOUL, by="doc")


def test_recorded_answers_of_jev_are_targets() -> None:
    found, skipped = read_labelled(FIXTURES / "jev" / "jevassert_demo-triage_predictions.jsonl")
    assert (len(found), skipped) == (30, 0)
    assert {one.parsed.__class__.__name__ for one in found} == {"Noul", "Choice", "Score"}
    assert all(one.target.sum() == pytest.approx(1) for one in found)
    with pytest.raises(DataError, match="no line with a question that can be used"):
        read_labelled(FIXTURES / "jev" / "public_evals.jsonl")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([1], "not a JSON object"),
        ({"state": "s"}, "needs `state` and `type`"),
        ({**NOUL, "gold": "yes"}, "no answer of this noul"),
        ({**NOUL, "dist": 1.5}, "no distribution"),
        ({**CHOICE, "gold": "z"}, "'z', which is no option"),
        ({**CHOICE, "dist": {"z": 1}}, "'z', which is no option"),
        ({**SCORE, "gold": 3}, "no answer of this score"),
        ({**SCORE, "gold": True}, "no answer of this score"),
        ({**SCORE, "dist": [1]}, "no distribution over the 3"),
        ({**CHOICE, "criteria": {}}, "at least one choice"),
        ({"request": {}, "answer": {"noul": 1}}, "`request` needs"),
        (
            {
                "request": {"state": "s", "question": {"type": "noul", "instructions": "x"}},
                "answer": {"type": "score", "noul": 1},
            },
            "no answer to a noul",
        ),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(DataError) as error:
        read(tmp_path / "d.jsonl", NOUL, line)
    assert "d.jsonl:2: " in str(error.value)
    assert message in str(error.value)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 8), min_size=2, max_size=40), st.floats(0.05, 0.9), st.integers(0, 9))
def test_a_split_never_cuts_a_group(groups: list[int], share: float, seed: int) -> None:
    rows = [row([0.5, 0.5], 0, str(group)) for group in groups]
    try:
        fitting, held = split(rows, share, seed=seed)
    except ValueError:
        assert len(set(groups)) == 1 or share > 0.5 or len(set(groups)) < len(groups)
        return
    assert {r.group for r in fitting}.isdisjoint(r.group for r in held)
    assert len(fitting) + len(held) == len(rows)
    assert len(held) >= share * len(rows)
    again = split(rows, share, seed=seed)[1]
    assert list(map(id, again)) == list(map(id, held))
    folds = group_folds(rows, seed=seed)
    assert sorted(number for fold in folds for number in fold) in ([], list(range(len(rows))))
    parts = [{rows[number].group for number in fold} for fold in folds]
    assert sum(map(len, parts)) == len(set().union(*parts))


def test_a_method_is_chosen_on_rows_that_it_was_not_fitted_on() -> None:
    rows = overconfident(300, 30)
    name, losses = choose_method(rows, ("temperature", "platt"), group_folds(rows))
    assert name in ("temperature", "platt")
    assert losses["temperature"] < losses[LEFT]
    fine = [row([0.7, 0.3], 0 if number % 10 < 7 else 1, str(number)) for number in range(100)]
    assert choose_method(fine, ("platt",), group_folds(fine, seed=1))[0] == LEFT
    assert choose_method(rows, ("vector",), [])[0] == "temperature"


def test_a_method_that_the_rows_do_not_determine_is_passed_over() -> None:
    rows = [row([0.9, 0.1, 0.0 + 1e-9], n % 2, str(n)) for n in range(20)] + [row([0.9, 0.05, 0.03, 0.02], 0, "x")]
    assert "vector" not in choose_method(rows, ("temperature", "vector"), group_folds(rows))[1]
    with pytest.raises(ValueError, match="same answers"):
        fit("vector", rows)
    with pytest.raises(ValueError, match="no method"):
        fit("isotonic", rows)


def test_what_is_fitted_is_better_on_held_out_rows(tmp_path: Path) -> None:
    rows = overconfident(400, 40)
    path = tmp_path / "d.jsonl"
    lines = [{**NOUL, "state": r.group, "gold": bool(r.target[0]), "task": r.task} for r in rows]
    (found,) = calibrate_rows(
        read(path, *lines), [np.exp(r.log_p) for r in rows], method="temperature", holdout=0.2, seed=0
    )
    assert found.scaling is not None
    assert found.before is not None
    assert found.after is not None
    assert found.fitting + found.after.n == 400
    assert found.after.log_loss.value < found.before.log_loss.value
    assert found.after.ece.value < found.before.ece.value
    assert found.after.ece.low <= found.after.ece.high
    assert found.tasks_left_out is not None
    assert found.tasks_left_out.n == 400


def test_too_few_groups_leave_a_type_as_it_is(tmp_path: Path) -> None:
    (found,) = calibrate_rows(
        read(tmp_path / "d", NOUL, NOUL), [np.array([0.9, 0.1])] * 2, method="auto", holdout=0.2, seed=0
    )
    assert found.scaling is None
    assert found.problem is not None
    assert "cannot be split" in found.problem


def test_errors_and_intervals() -> None:
    rows = [row([0.8, 0.2], 0, "a"), row([0.8, 0.2], 1, "b")]
    found = scores(rows, apply(None, rows))
    assert found.ece.value == pytest.approx(0.5)  # two rows, two bins: one right, one wrong
    assert found.brier.value == pytest.approx((0.08 + 1.28) / 2)
    assert found.log_loss.value == pytest.approx(-np.log([0.8, 0.2]).mean())
    assert ece(np.full(100, 0.75), (np.arange(100) % 4 > 0).astype(float), bins=1) == pytest.approx(0)
    (interval,) = bootstrap(["a"] * 5, [lambda chosen: float(chosen.mean())])
    assert interval.low == interval.value == interval.high, "one group: nothing to draw"
    with pytest.raises(ValueError, match="no rows"):
        scores([], [])


def test_tasks_make_folds_only_where_there_are_two() -> None:
    assert task_folds([row([0.5, 0.5], 0, "a", "t"), row([0.5, 0.5], 0, "b")]) == {}
    assert task_folds([row([0.5, 0.5], 0, "a", "t"), row([0.5, 0.5], 0, "b", "u")]) == {"t": [0], "u": [1]}


def test_a_file_keeps_its_other_entries_and_is_not_overwritten_for_another_model(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    bound = {"model": "m", "template": "t-1", "template_hash": "aa", "weights_hash": "bb", "layout": "isolated"}
    for steps, temperature in ((2, 2.0), (1, 3.0), (2, 4.0)):
        scalings = {"noul": {"method": "temperature", "temperature": temperature}}
        write_entry(path, scalings, **bound, steps=steps, fitted_on="x")  # type: ignore[arg-type]
    found = {e.steps: e.scalings.noul.temperature for e in read_file(path).entries}  # type: ignore[union-attr]
    assert found == {1: 3.0, 2: 4.0}
    with pytest.raises(CalibrationError, match="choose another"):
        write_entry(path, {}, **{**bound, "weights_hash": "cc"}, steps=1, fitted_on="x")  # type: ignore[arg-type]
