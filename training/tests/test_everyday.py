"""The everyday texts in the model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openjev_server.calibration.files import FILE_NAME, FileCalibration, read_file
from openjev_server.questions import answer_count
from openjev_training.everyday import CASES
from openjev_training.everyday_run import STEPS, as_markdown, asked
from openjev_training.marks import marked


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(__file__).parents[1] / "results" / "everyday.json").read_text())
    return found


def test_the_card_says_what_was_kept(kept: dict[str, Any], shipped: Path) -> None:
    assert marked(shipped / "MODEL_CARD.md", "everyday") == as_markdown(kept)


def test_kept_answers_are_of_these_cases_weights_and_calibration(kept: dict[str, Any], shipped: Path) -> None:
    file = read_file(shipped / FILE_NAME)
    assert kept["weights"] == file.weights_hash
    (entry,) = (e for e in file.entries if (e.layout, e.steps) == (kept["layout"], kept["steps"]))
    calibration = FileCalibration(entry)
    assert (kept["calibration"], kept["steps"]) == (calibration.hash, STEPS)
    assert [case["state"] for case in kept["cases"]] == [state for state, _ in CASES]
    for case, (_, questions) in zip(kept["cases"], CASES, strict=True):
        for found, (question, right) in zip(case["questions"], questions, strict=True):
            assert asked(question).items() <= found.items()
            assert found["right"] == right < answer_count(question) == len(found["calibrated"])
            again = calibration.apply(question, found["as read"])
            assert found["calibrated"] == pytest.approx(again, abs=0.02), "what was read has three decimals"


def test_a_wrong_answer_is_called_wrong() -> None:
    question = {"type": "yes/no", "question": "A|B?", "answers": ["yes", "no"], "right": 1}
    question |= {"as read": [0.9, 0.1], "calibrated": [0.6, 0.4]}
    sure = {**question, "right": 0}
    case = {"state": "one\ntwo", "questions": [question, sure]}
    text = as_markdown({"weights": "w", "calibration": "c", "layout": "isolated", "steps": 2, "cases": [case]})
    assert "1 texts, 2 questions, 1 answered right (0 of 0 choice, 1 of 2 yes/no, 0 of 0 score)." in text
    assert text.splitlines()[-2:] == [
        "| one<br>two | A\\|B? (yes/no) | **yes 0.60**, no 0.40; as read 0.90 | no | **wrong** |",
        "|  | A\\|B? (yes/no) | **yes 0.60**, no 0.40; as read 0.90 | yes |  |",
    ]
