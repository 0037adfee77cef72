"""Questions and options: their wire form, and what is refused before anything is sent."""

from __future__ import annotations

import copy
import pickle
from types import MappingProxyType
from typing import Any

import httpx
import pytest
from mock_host import GOOD, Script
from openjev_sdk import Choice, Client, Noul, Options, Score, UsageError


def sent(state: Any, questions: Any, **arguments: Any) -> Script:
    script = Script([GOOD])
    with Client(transport=httpx.MockTransport(script)) as client:
        client.decide(state, questions, **arguments)
    return script


@pytest.mark.parametrize(
    ("question", "body"),
    [
        (Noul("Is it?"), {"type": "noul", "instructions": "Is it?"}),
        (Noul(true="yes"), {"type": "noul", "criteria": {"true": "yes"}}),
        (
            Noul({"ask": ["x"]}, true="yes", false={"a": 1}),
            {"type": "noul", "instructions": {"ask": ["x"]}, "criteria": {"true": "yes", "false": {"a": 1}}},
        ),
        (
            Choice("Which?", ["b", "a"]),
            {"type": "choice", "instructions": "Which?", "criteria": {"b": None, "a": None}},
        ),
        (Choice(options={"": "nothing", "a": None}), {"type": "choice", "criteria": {"": "nothing", "a": None}}),
        (
            Score("How?", ("low", {"high": 1})),
            {"type": "score", "instructions": "How?", "criteria": ["low", {"high": 1}]},
        ),
        ({"type": "box", "instructions": "?"}, {"type": "box", "instructions": "?"}),
        (MappingProxyType({"type": "noul", "instructions": None}), {"type": "noul", "instructions": None}),
    ],
)
def test_wire_form(question: Any, body: dict[str, Any]) -> None:
    sent_body = sent("state", {"q": question}).body()
    assert sent_body == {"state": "state", "model": "jev-latest", "questions": {"q": body}}
    criteria = sent_body["questions"]["q"].get("criteria")
    assert not isinstance(criteria, dict) or list(criteria) == list(body["criteria"])


def test_bodies_are_compact_utf8() -> None:
    content = sent({"text": "Grüße"}, {"q": Noul("?")}).requests[0].content
    assert "Grüße".encode() in content
    assert b": " not in content


@pytest.mark.parametrize(
    "make",
    [
        Noul,
        Choice,
        lambda: Choice("Which?", {}),
        lambda: Choice("Which?", "ab"),
        lambda: Choice("Which?", ["a", "a"]),
        lambda: Choice("Which?", [1, 2]),  # type: ignore[list-item]
        Score,
        lambda: Score("How?", "low"),
        lambda: Score("How?", ["low", None]),  # type: ignore[list-item]
        lambda: Score("How?", {"0": "low"}),  # type: ignore[arg-type]
    ],
)
def test_impossible_questions_cannot_be_made(make: Any) -> None:
    with pytest.raises(UsageError):
        make()


@pytest.mark.parametrize(
    ("state", "questions"),
    [
        ("s", {}),
        ("s", [Noul("?")]),
        ("s", {"": Noul("?")}),
        ("s", {1: Noul("?")}),
        ("s", {"q": "Is it?"}),
        ("s", {"q": {"instructions": "?"}}),
        (None, {"q": Noul("?")}),
        ({"n": float("nan")}, {"q": Noul("?")}),
        ({"n": {1, 2}}, {"q": Noul("?")}),
        ({"n": b"bytes"}, {"q": Noul("?")}),
        ("\ud800", {"q": Noul("?")}),
    ],
)
def test_what_no_host_can_answer_is_not_sent(state: Any, questions: Any) -> None:
    script = Script([GOOD])
    with Client(transport=httpx.MockTransport(script)) as client, pytest.raises(UsageError):
        client.decide(state, questions)
    assert script.requests == []


def test_a_state_that_contains_itself_is_not_sent() -> None:
    state: list[Any] = []
    state.append(state)
    with pytest.raises(UsageError):
        sent(state, {"q": Noul("?")})


@pytest.mark.parametrize("question", [Noul("?", true={"a": 1}), Choice("?", ["a"]), Score("?", ["a", "b"])])
def test_questions_are_immutable_values(question: Any) -> None:
    assert pickle.loads(pickle.dumps(question)) == question == copy.deepcopy(question)
    with pytest.raises(AttributeError):
        question.instructions = "other"


def test_a_question_keeps_what_it_was_made_of() -> None:
    options: dict[str, str | None] = {"a": None}
    question = Choice("?", options)
    options["b"] = "later"
    assert list(question.options) == ["a"]
    with pytest.raises(TypeError):
        question.options["c"] = None  # type: ignore[index]


def test_options_ride_in_headers_and_only_when_set() -> None:
    all_set = Options(layout="grouped", steps=3, replicas=2, decimals=6, calibration="off")
    request = sent("s", {"q": Noul("?")}, options=all_set).requests[0]
    switches = {name: value for name, value in request.headers.items() if name.startswith("openjev-")}
    assert switches == {
        "openjev-layout": "grouped",
        "openjev-steps": "3",
        "openjev-replicas": "2",
        "openjev-decimals": "6",
        "openjev-calibration": "off",
    }
    request = sent("s", {"q": Noul("?")}, options=Options(steps=1)).requests[0]
    assert [name for name in request.headers if name.startswith("openjev-")] == ["openjev-steps"]
    assert not [name for name in sent("s", {"q": Noul("?")}).requests[0].headers if name.startswith("openjev-")]


@pytest.mark.parametrize("texts", [{}, {"instructions": ""}, {"instructions": "", "true": "", "false": None}])
def test_a_noul_that_says_nothing(texts: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a noul needs"):
        Noul(**texts)
    assert Noul("", true="yes").body() == {"type": "noul", "instructions": "", "criteria": {"true": "yes"}}
