"""The table of answers."""

from __future__ import annotations

import io
from typing import Any

import pytest
from openjev_server.cli.table import BAR_WIDTH, Answered, print_answers
from rich.console import Console


def printed(answers: dict[str, Any], questions: dict[str, Any] | None = None, *, encoding: str = "utf-8") -> list[str]:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding=encoding) as file:
        body = {"model": "jev-1.14.0", "answers": answers, "usage": {"input_tokens": 7, "output_tokens": 2}}
        print_answers(Console(file=file, width=100), questions or {}, Answered(body, "print", 12.3))
        file.flush()
        return raw.getvalue().decode(encoding).splitlines()


def test_a_noul_shows_both_sides() -> None:
    lines = printed({"q": {"type": "noul", "noul": 0.25}}, {"q": {"type": "noul", "instructions": "Late?"}})
    assert lines[0].rstrip() == "q Late? → no"
    assert lines[1].split() == ["yes", "0.25", "█" * (BAR_WIDTH // 4)]
    assert lines[2].split() == ["no", "0.75", "█" * (BAR_WIDTH * 3 // 4)]
    assert lines[-1] == "jev-1.14.0 · 7 tokens in · 12 ms · print"


def test_a_choice_shows_the_likeliest_first_and_counts_the_rest() -> None:
    probabilities = {f"option {i}": p for i, p in enumerate([0.01] * 20 + [0.8])}
    lines = printed(
        {"q": {"type": "choice", "choice": "option 20", "confidence": 0.79, "probabilities": probabilities}}
    )
    assert "option 20  (confidence 0.79)" in lines[0]
    assert lines[1].split()[:3] == ["option", "20", "0.80"]
    assert lines[11].split() == ["and", "11", "more", "0.11"]


def test_a_score_shows_every_level_in_order() -> None:
    answer = {
        "type": "score",
        "score": 1.5,
        "confidence": 0.5,
        "legend": {"0": "calm", "1": {"like": "angry"}},
        "probabilities": {"0": 0.5, "1": 0.5},
    }
    lines = printed({"q": answer})
    assert lines[0].rstrip() == "q → 1.5 of 1  (confidence 0.5)"
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1"]
    assert '{"like": "angry"}' in lines[2]


def test_an_answer_of_another_type_is_shown_as_it_came() -> None:
    assert '"type": "box"' in printed({"q": {"type": "box", "box": {"top": 0.1}}})[0]


@pytest.mark.parametrize("text", ["[bold]x[/bold]", "[/]", "\x1b[31mred"])
def test_texts_are_not_taken_for_markup(text: str) -> None:
    lines = printed(
        {"q": {"type": "choice", "choice": text, "confidence": 1.0, "probabilities": {text: 1.0}}},
        {"q": {"instructions": text}},
    )
    assert text.replace("\x1b", " ") in "\n".join(lines)
    assert "\x1b" not in "\n".join(lines)


def test_without_utf8_bars_are_plain() -> None:
    lines = printed({"q": {"type": "noul", "noul": 1.0}}, encoding="ascii")
    assert lines[1].split() == ["yes", "1.00", "#" * BAR_WIDTH]
