from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openjev_server.questions import Choice, Noul, Option, Question, Score
from openjev_server.wire.answer import render_answer, render_response
from openjev_server.wire.confidence import choice_confidence, expected_score, most_likely, score_confidence
from openjev_server.wire.json import to_json_bytes
from openjev_server.wire.openapi import json_schemas
from openjev_server.wire.rounding import normalise, round_distribution

RECORDED = Path(__file__).parents[3] / "fixtures" / "recorded"
RESPONSE_SCHEMA = Draft202012Validator(json_schemas()["response"])

WEIGHTS = st.lists(st.floats(0, 1, allow_subnormal=False) | st.just(0.125), min_size=1, max_size=255).filter(
    lambda w: sum(w) > 0
)
DECIMALS = st.integers(2, 6)


@given(WEIGHTS, DECIMALS)
@example([1.0] * 3, 2)
@example([1.0] * 255, 2)
@example([0.005, 0.995], 2)
@example([1e-300, 1e-300], 6)
def test_rounded_distributions(weights: list[float], decimals: int) -> None:
    p = normalise(weights)
    rounded = round_distribution(weights, decimals)
    texts = [json.dumps(x) for x in rounded]
    assert sum(map(Decimal, texts)) == 1
    assert all(abs(a - b) < 10.0**-decimals for a, b in zip(p, rounded, strict=True))
    assert rounded[most_likely(p)] == max(rounded)
    order = sorted(range(len(p)), key=lambda i: p[i])
    assert all(rounded[a] <= rounded[b] for a, b in pairwise(order) if p[a] < p[b])


@pytest.mark.parametrize(
    ("probabilities", "decimals", "expected"),
    [
        ([1 / 3] * 3, 2, (0.34, 0.33, 0.33)),
        ([0.5, 0.5], 2, (0.5, 0.5)),
        ([0.005, 0.995], 2, (0.01, 0.99)),
        ([0.994, 0.003, 0.003], 2, (1.0, 0.0, 0.0)),
        ([0.1049, 0.1049, 0.7902], 2, (0.11, 0.1, 0.79)),
        ([1.0], 2, (1.0,)),
        ([2.0, 2.0], 4, (0.5, 0.5)),
        ([0.29, 0.71], 2, (0.29, 0.71)),
    ],
)
def test_largest_remainder(probabilities: list[float], decimals: int, expected: tuple[float, ...]) -> None:
    assert round_distribution(probabilities, decimals) == expected


@pytest.mark.parametrize("bad", [[], [0.0], [math.nan], [math.inf, 1.0], [1.0, -0.1]])
def test_no_distribution(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="distribution"):
        normalise(bad)


@given(WEIGHTS)
def test_confidence_and_score_are_in_range(weights: list[float]) -> None:
    p = normalise(weights)
    assert 0 <= choice_confidence(p) <= 1
    assert 0 <= score_confidence(p) <= 1
    assert 0 <= expected_score(p) <= len(p) - 1


def test_confidence_formulas() -> None:
    assert choice_confidence([1.0]) == score_confidence([1.0]) == 1.0
    assert choice_confidence([0.25] * 4) == 0.0
    assert choice_confidence([0.5, 0.25, 0.25]) == pytest.approx((3 * 0.5 - 1) / 2)
    assert score_confidence([0.65, 0.35, 0, 0]) == pytest.approx(0.65)
    assert score_confidence([0, 0, 0.01, 0.83, 0.16]) == pytest.approx(0.858, abs=1e-3)
    assert score_confidence([0.5, 0, 0, 0.5]) == 0.0
    assert expected_score([0, 0.25, 0.75]) == 1.75


def recorded_answers() -> list[dict[str, Any]]:
    pairs = [pair for file in sorted(RECORDED.glob("*.json")) for pair in json.loads(file.read_text())["pairs"]]
    bodies = [p["response"] for p in pairs if isinstance(p.get("response"), dict)]
    return [answer for body in bodies for answer in body.get("answers", {}).values()]


def test_recorded_confidences_and_scores_follow_the_formulas() -> None:
    seen = 0
    for answer in recorded_answers():
        if "confidence" not in answer:
            continue
        p = normalise(list(answer["probabilities"].values()))
        formula = choice_confidence if answer["type"] == "choice" else score_confidence
        assert abs(formula(p) - answer["confidence"]) <= 0.0101
        if answer["type"] == "score":
            # Each printed probability is within 0.01 of the raw one, so a score may move by more than a confidence.
            assert abs(expected_score(p) - answer["score"]) <= 0.0101
        else:
            assert answer["probabilities"][answer["choice"]] == max(p)
        seen += 1
    assert seen == 83


def test_recorded_distributions_survive_our_rounding() -> None:
    seen = 0
    for answer in recorded_answers():
        if "probabilities" in answer:
            p = list(answer["probabilities"].values())
            assert sum(map(Decimal, map(str, p))) == 1
            assert list(round_distribution(p, 2)) == p
            seen += 1
    assert seen == 103


@dataclass(frozen=True)
class Usage:
    input_tokens: int = 468
    output_tokens: int = 85


def test_the_recorded_response_byte_for_byte() -> None:
    options = tuple(Option(name) for name in ("sales", "technical", "cancellation", "billing", "other"))
    answers = {
        "label": render_answer(Choice("label", "x", options), [0, 0.001, 0, 0.999, 0], decimals=2),
        "urgent": render_answer(Noul("urgent", "x"), [0.3149, 0.6851], decimals=2),
        "tone": render_answer(Score("tone", None, ("calm", "annoyed", "angry")), [0.943, 0.057, 0.0], decimals=2),
    }
    body = render_response("jev-1.13.0", answers, Usage())
    RESPONSE_SCHEMA.validate(body)
    assert to_json_bytes(body) == (
        b'{"model":"jev-1.13.0","answers":{"label":{"type":"choice","choice":"billing","confidence":1.0,'
        b'"probabilities":{"sales":0.0,"technical":0.0,"cancellation":0.0,"billing":1.0,"other":0.0}},'
        b'"urgent":{"type":"noul","noul":0.31},"tone":{"type":"score","score":0.06,"confidence":0.91,'
        b'"legend":{"0":"calm","1":"annoyed","2":"angry"},"probabilities":{"0":0.94,"1":0.06,"2":0.0}}},'
        b'"usage":{"input_tokens":468,"output_tokens":85}}'
    )


def test_the_legend_echoes_levels_as_sent() -> None:
    levels = ("", {"a": [1, None, "\ud800"]}, ["x"])
    answer = render_answer(Score("q", None, levels), [0.2, 0.3, 0.5], decimals=2)
    assert answer["legend"] == {"0": levels[0], "1": levels[1], "2": levels[2]}
    assert json.loads(to_json_bytes(answer)) == answer


def test_the_choice_is_the_unrounded_winner() -> None:
    question = Choice("q", None, (Option("a"), Option("b")))
    assert render_answer(question, [0.4999, 0.5001], decimals=2) == {
        "type": "choice",
        "choice": "b",
        "confidence": 0.0,
        "probabilities": {"a": 0.5, "b": 0.5},
    }
    assert render_answer(question, [0.5, 0.5], decimals=2)["choice"] == "a"


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_number_of_probabilities(count: int) -> None:
    with pytest.raises(ValueError, match="probabilities for 2 answers"):
        render_answer(Noul("q", "x"), [1 / count] * count, decimals=2)


@st.composite
def questions_and_weights(draw: st.DrawFn) -> tuple[Question, list[float]]:
    kind = draw(st.sampled_from(["noul", "choice", "score"]))
    if kind == "noul":
        question: Question = Noul("q", "x")
        n = 2
    elif kind == "choice":
        names = draw(st.lists(st.text(), min_size=1, max_size=20, unique=True))
        question, n = Choice("q", None, tuple(map(Option, names))), len(names)
    else:
        texts = (
            st.text()
            | st.lists(st.floats(allow_nan=False, allow_infinity=False))
            | st.dictionaries(st.text(), st.none() | st.integers())
        )
        levels = draw(st.lists(texts, min_size=1, max_size=10))
        question, n = Score("q", None, tuple(levels)), len(levels)
    weights = draw(st.lists(st.floats(0, 1), min_size=n, max_size=n).filter(lambda w: sum(w) > 1e-300))
    return question, weights


@given(questions_and_weights(), DECIMALS)
def test_any_answer_is_valid_and_well_printed(drawn: tuple[Question, list[float]], decimals: int) -> None:
    question, weights = drawn
    answer = render_answer(question, weights, decimals=decimals)
    body = render_response("m", {question.id: answer}, Usage())
    RESPONSE_SCHEMA.validate(body)
    raw = to_json_bytes(body)
    assert json.loads(raw) == body
    numbers = [v for k, v in answer.items() if k in {"noul", "score", "confidence"}]
    for number in [*numbers, *answer.get("probabilities", {}).values()]:
        assert re.fullmatch(rb"\d\.\d{1,%d}" % decimals, to_json_bytes(number))
