"""The command that fills the model card's table of accuracies, and that the card says what was measured."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from benchmarks.accuracy import RESULTS, ROOT, Result, Row, fill_card, first_rows, in_process, read_result, summarise

CARD = ROOT / "server" / "openjev_server" / "models" / "nano" / "MODEL_CARD.md"


def row(task: str, kind: str, gold: object) -> Row:
    return Row(task, kind, "A state.", {"type": kind, "instructions": "A question?", "criteria": None}, gold)


def test_the_first_rows_of_each_task(tmp_path: Path) -> None:
    lines = [{"task": task, "type": "noul", "state": str(n), "instructions": "?", "criteria": None, "gold": n % 2 == 0}
             for n in range(4) for task in ("a", "b")]  # fmt: skip
    path = tmp_path / "rows.jsonl.xz"
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, lines)).encode()))
    assert [(r.task, r.state) for r in first_rows(path, 2)] == [("a", "0"), ("b", "0"), ("a", "1"), ("b", "1")]


def test_a_refused_row_is_wrong_and_counted() -> None:
    rows = [row("t", "choice", gold) for gold in ("x", "x", "y", "z")]
    (task,) = summarise(rows, ["x", "y", "y", None])
    assert (task.rows, task.accuracy, task.majority, task.refused) == (4, 0.5, 0.5, 1)


def test_false_is_an_answer_and_no_answer_is_not_false() -> None:
    (task,) = summarise([row("t", "noul", False), row("t", "noul", False)], [False, None])
    assert (task.accuracy, task.refused) == (0.5, 1)


def test_a_card_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="has no"):
        fill_card("# A card\n", Result("f", "t", "s", 1, ()))


def test_the_card_says_what_was_measured() -> None:
    card = CARD.read_text(encoding="utf-8")
    assert fill_card(card, read_result(RESULTS)) == card


def test_in_process_answers_are_of_the_golds_kind() -> None:
    ask = in_process("nano", "cpu", "float32", 1, 16_384)
    rows = [
        row("a", "noul", True),
        Row("b", "choice", "A cat.", {"type": "choice", "instructions": "?", "criteria": {"cat": None, "x": None}}, 0),
        Row("c", "score", "A cat sat.", {"type": "score", "instructions": "How?", "criteria": ["bad", "good"]}, 1),
    ]  # fmt: skip
    fingerprint, (yes, option, level) = ask(rows)
    assert fingerprint.startswith("openjev-nano-1@")
    assert isinstance(yes, bool)
    assert option in {"cat", "x"}
    assert (level in {0, 1}, isinstance(level, bool)) == (True, False)
