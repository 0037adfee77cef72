"""Questions as flags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.cli.syntax import (
    QuestionSyntaxError,
    parse_choice,
    parse_noul,
    parse_score,
    questions_from_flags,
)


def test_a_noul_is_taken_as_it_stands() -> None:
    assert parse_noul("Is x=3, or: a|b?") == (None, {"type": "noul", "instructions": "Is x=3, or: a|b?"})
    assert parse_noul("@late Is it late?") == ("late", {"type": "noul", "instructions": "Is it late?"})


def test_a_choice_has_options_with_and_without_descriptions() -> None:
    name, question = parse_choice("@team Which team? = billing: payments: all of them, sales ,other:")
    assert name == "team"
    assert question == {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"billing": "payments: all of them", "sales": None, "other": None},
    }
    assert list(question["criteria"]) == ["billing", "sales", "other"]


def test_a_score_has_levels() -> None:
    assert parse_score("How angry?=calm, really|annoyed: a bit|furious") == (
        None,
        {"type": "score", "instructions": "How angry?", "criteria": ["calm, really", "annoyed: a bit", "furious"]},
    )


def test_instructions_may_be_missing() -> None:
    assert parse_choice("=a,b") == (None, {"type": "choice", "criteria": {"a": None, "b": None}})


def test_a_backslash_takes_the_meaning_from_a_mark_and_from_nothing_else() -> None:
    _, question = parse_choice(r"Is a\=b?=x\,y:1\:2,C:\dir,back\\slash")
    assert question["instructions"] == "Is a=b?"
    assert question["criteria"] == {"x,y": "1:2", "C": r"\dir", "back\\slash": None}


def test_questions_without_a_name_are_counted_by_type() -> None:
    questions = questions_from_flags(["a?", "@own b?"], ["c?=x,y"], ["d?=1|2", "e?=1|2"])
    assert list(questions) == ["noul1", "own", "choice1", "score1", "score2"]


@pytest.mark.parametrize(
    ("parse", "flag", "complaint"),
    [
        (parse_noul, "  ", "asks nothing"),
        (parse_noul, "@name", "asks nothing"),
        (parse_choice, "Which?", "needs its answers"),
        (parse_choice, r"Which?\=a,b", "needs its answers"),
        (parse_choice, "Which?=a,,b", "without a name"),
        (parse_choice, "Which?=", "without a name"),
        (parse_choice, "Which?=a,b,a:again", "twice"),
        (parse_score, "How?", "needs its answers"),
        (parse_score, "How?=a||b", "empty level"),
    ],
)
def test_what_cannot_be_read_is_refused_and_quoted(parse: object, flag: str, complaint: str) -> None:
    assert callable(parse)
    with pytest.raises(QuestionSyntaxError, match=complaint) as raised:
        parse(flag)
    assert repr(flag) in str(raised.value)


def test_two_questions_of_one_name_are_refused() -> None:
    with pytest.raises(QuestionSyntaxError, match="'a'"):
        questions_from_flags(["@a x?"], ["@a y?=1,2"], [])


plain = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=20).filter(lambda s: s.strip() == s)


def escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in "=,:|\\" else c for c in text)


@given(plain.filter(lambda s: not s.startswith("@")), st.dictionaries(plain, plain | st.none(), min_size=1, max_size=5))
def test_every_choice_can_be_written(instructions: str, options: dict[str, str | None]) -> None:
    written = ",".join(escaped(name) + (f":{escaped(text)}" if text else "") for name, text in options.items())
    assert parse_choice(f"{escaped(instructions)}={written}") == (
        None,
        {"type": "choice", "instructions": instructions, "criteria": options},
    )


@given(plain.filter(lambda s: not s.startswith("@")), st.lists(plain, min_size=1, max_size=5))
def test_every_score_can_be_written(instructions: str, levels: list[str]) -> None:
    written = "|".join(map(escaped, levels))
    assert parse_score(f"@id {escaped(instructions)}={written}")[1]["criteria"] == levels
