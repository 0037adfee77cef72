"""`reproduce-seed` end to end on the embedded checkpoint, with a few cases of our own and what a seed said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from live_server import LiveServer
from openjev_compat import local_model, reproduce_output
from openjev_compat.cases import import_cases
from openjev_compat.fixture import Fixture
from openjev_compat.public_cases import default_fixtures, read_cases, read_recorded
from openjev_compat.reproduce import MODES, OWN_WORDING, PUBLIC_QUESTIONS, measure_mode, seed_answers
from openjev_compat.store import FixtureError, load_fixtures, write_fixtures
from typer.testing import CliRunner, Result

QUESTIONS = [
    {"type": "noul", "instructions": "Is the parcel late?", "criteria": {"true": "late", "false": "in time"}},
    {"type": "choice", "instructions": "Who pays?", "criteria": {"buyer": "buys", "seller": "sells"}},
    {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "furious"]},
]
ANSWERS: dict[str, Any] = {
    "late": {"noul": 0.8},
    "payer": {"choice": "seller", "confidence": 0.4, "probabilities": {"buyer": 0.3, "seller": 0.7}},
    "anger": {"score": 1.2, "confidence": 0.7, "probabilities": {"0": 0.0, "1": 0.8, "2": 0.2}},
}
RUNS = [mode.seed_run for mode in MODES.values() if mode.seed_run is not None]
QUESTION_COUNT = 4
LABELS = {"late": "true", "payer": "seller", "anger": "1"}


def make_cases(directory: Path) -> Path:
    nodes = [
        {"ran": True, "doc": 0, "questions": {"late": 0, "payer": 1, "anger": 2}, "answers": ANSWERS},
        {"ran": True, "doc": 1, "questions": {"late": 0}, "answers": ANSWERS},
    ]
    references = {"late": {"sets": [{"value": True}]}, "payer": {"sets": [{"value": "seller"}]}}
    book = {
        "documents": ["Where is my parcel?", {"message": "It broke {twice}."}],
        "questions": QUESTIONS,
        "cases": {
            f"parcel-{number}": {
                "models": {"typesafe": {"model": "v1", "nodes": {"triage": node}}},
                "reference_answers": {"triage": references},
            }
            for number, node in enumerate(nodes)
        },
    }
    cases = directory / "cases"
    cases.mkdir()
    (cases / "parcel-service-cases.js").write_text(f"show({json.dumps({'eval': book})});", encoding="utf-8")
    return cases


def make_recorded(directory: Path, cases: Path, answers: dict[str, list[Fixture]] | None = None) -> Path:
    """Jev as in the case files; the seed as in `answers` by run, else by LABELS."""
    (jev,) = import_cases(cases / "parcel-service-cases.js", recorded_at="2026-12-02").values()
    recorded = directory / "recorded"
    write_fixtures(recorded / "jev" / "public_evals.jsonl", jev)
    for run in RUNS:
        said = [seed_fixture(f, LABELS[f.id.rpartition("/")[2]]) for f in jev] if answers is None else answers[run]
        write_fixtures(recorded / "seed" / f"{run}.jsonl", said)
    return recorded


def seed_fixture(fixture: Fixture, label: str) -> Fixture:
    line = fixture.to_json() | {"request": None, "reference": None, "run": "seed"}
    key = "choice" if fixture.type == "choice" else "label"
    return Fixture.from_json(line | {"answer": {"type": fixture.type, key: label}})


def reproduce(cases: Path, recorded: Path, out: Path, *flags: str) -> Result:
    from openjev_compat.reproduce_cli import app

    arguments = ["reproduce-seed", "--cases", str(cases), "--fixtures", str(recorded), "--out", str(out)]
    return CliRunner().invoke(app, [*arguments, "--model", "nano", "--device", "cpu", *flags])


def test_a_model_that_is_not_the_released_one_fails_and_one_that_answers_the_same_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce_output, "PUBLIC_QUESTIONS", QUESTION_COUNT)
    cases = make_cases(tmp_path)
    out = tmp_path / "out"
    failed = reproduce(cases, make_recorded(tmp_path, cases), out)
    assert failed.exit_code == 1, failed.output
    assert "FAIL: the seed is not reproduced" in failed.output
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    assert [outcome["answered"] for outcome in report["outcomes"]] == [4] * 5
    assert [outcome["within"] for outcome in report["outcomes"][3:]] == [None, None]
    assert report["passed"] is False
    assert {outcome["seed_right"] for outcome in report["outcomes"][:3]} == {3}
    assert "| seed, grouped, 2 steps |" in (out / "report.md").read_text(encoding="utf-8")

    # What was answered is not asked again: the model is not even loaded.
    monkeypatch.setattr(local_model.LocalModel, "engine", property(lambda self: pytest.fail("asked again")))
    names = ["seed-one-question", "seed-grouped-1-step", "seed-grouped-2-steps"]
    own = {run: seed_answers(load_fixtures([out / f"{name}.jsonl"])) for run, name in zip(RUNS, names, strict=True)}
    again = tmp_path / "again"
    again.mkdir()
    passed = reproduce(cases, make_recorded(again, cases, own), out)
    assert passed.exit_code == 0, passed.output
    assert "PASS: the seed is reproduced" in passed.output
    assert json.loads((out / "report.json").read_text(encoding="utf-8"))["passed"] is True


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        (("--modes", "1", "--nodes", "1"), "seed, one question: 3 of the 4 public questions"),
        (("--modes", "1,2,3", "--nodes", "1"), "seed, grouped, 2 steps: 3 of the 4 public questions"),
        (("--modes", "1,2"), "seed, grouped, 2 steps: not run"),
        (("--modes", "4,5"), "seed, one question: not run"),
    ],
)
@pytest.mark.parametrize("same", [True, False])
def test_a_part_has_no_verdict_whatever_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], missing: str, same: bool
) -> None:
    monkeypatch.setattr(reproduce_output, "PUBLIC_QUESTIONS", QUESTION_COUNT)
    cases = make_cases(tmp_path)
    (jev,) = import_cases(cases / "parcel-service-cases.js", recorded_at="2026-12-02").values()
    recorded = make_recorded(tmp_path, cases)
    answers = [replace(f, answer=f.answer | {"greedy": LABELS[f.id.rpartition("/")[2]] if same else "2"}) for f in jev]
    monkeypatch.setattr(
        local_model.LocalModel,
        "run",
        lambda self, setup, asks, *_: local_model.Run(
            tuple(f for f in answers if any(f.id in ask.questions for ask in asks)), (), 0, 1.0
        ),
    )
    done = reproduce(cases, recorded, tmp_path / "out", *flags)
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    shown = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert done.exit_code == 4, done.output
    assert report["passed"] is None
    assert {outcome["within"] for outcome in report["outcomes"]} <= {same, None}
    assert f"no verdict: {missing}" in shown or f"; {missing}" in shown
    for text in (done.output, shown):
        assert "no verdict" in text
        assert "PASS" not in text
        assert "FAIL" not in text


def test_the_public_questions_are_those_of_the_recording() -> None:
    fixtures = default_fixtures()
    assert fixtures is not None
    recorded = read_recorded(fixtures, RUNS)
    assert {len(recorded.jev), *map(len, recorded.seed.values())} == {PUBLIC_QUESTIONS}


def test_our_own_modes_of_a_running_server(tmp_path: Path, server: LiveServer) -> None:
    cases = make_cases(tmp_path)
    flags = ("--url", server.url, "--modes", "4,5")
    done = reproduce(cases, make_recorded(tmp_path, cases), tmp_path / "out", *flags)
    assert done.exit_code == 4, done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert [outcome["answered"] for outcome in report["outcomes"]] == [4, 4]
    assert report["passed"] is None


def test_a_missing_answer_or_a_changed_one_is_counted(tmp_path: Path) -> None:
    cases_directory = make_cases(tmp_path)
    recorded_directory = make_recorded(tmp_path, cases_directory)
    recorded = read_recorded(recorded_directory, RUNS)
    cases = read_cases(cases_directory, recorded.jev)
    mode = next(iter(MODES.values()))
    assert mode.seed_run is not None
    same = list(recorded.seed[mode.seed_run].values())
    outcome = measure_mode(mode, same, cases, recorded, OWN_WORDING, template="t", seconds=1.0)
    assert outcome.within is True
    assert outcome.right is not None
    assert (outcome.right.hits, outcome.right.n, outcome.seed_right, outcome.jev_right) == (3, 3, 3, 3)
    missing = measure_mode(mode, same[1:], cases, recorded, OWN_WORDING, template="t", seconds=1.0)
    assert missing.reasons == ("1 questions without an answer",)
    changed = [seed_fixture(same[0], "false"), *same[1:]]
    other = measure_mode(mode, changed, cases, recorded, OWN_WORDING, template="t", seconds=1.0)
    assert other.same_as_seed is not None
    assert (other.same_as_seed.hits, other.same_as_seed.n) == (3, 4)
    assert other.reasons == ("75.0% of the seed's answers are fewer than 93%",)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--modes", "9"), "numbers from 1 to 5"),
        (("--template", "absent.toml"), "absent.toml"),
        (("--model", "no-such-model"), "no-such-model"),
        (("--url", "http://127.0.0.1:9", "--modes", "1"), "not what a server answers"),
        (("--weights", "int3"), "--weights"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, flags: tuple[str, ...], reason: str) -> None:
    cases = make_cases(tmp_path)
    result = reproduce(cases, make_recorded(tmp_path, cases), tmp_path / "out", *flags)
    assert result.exit_code == 2, result.output
    assert reason in result.output


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FixtureError, match="no <workflow>-cases"):
        read_cases(tmp_path, {})
    cases = make_cases(tmp_path)
    (jev,) = import_cases(cases / "parcel-service-cases.js", recorded_at="2026-12-02").values()
    with pytest.raises(FixtureError, match="none of the 4"):
        read_cases(cases, {"another": jev[0]})
