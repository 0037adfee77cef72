from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.questions import Choice, Noul, Option, Score
from openjev_server.wire import errors
from openjev_server.wire.echo import MAX_ECHOED_BYTES
from openjev_server.wire.errors import WireError
from openjev_server.wire.json import to_json_bytes
from openjev_server.wire.parse import MAX_REPORTED_ERRORS, parse_request
from openjev_server.wire.request import WireRequest


def request(questions: Any, **more: Any) -> dict[str, Any]:
    return {"state": "s", "model": "jev-latest", "questions": questions, **more}


def parse(body: Any) -> WireRequest:
    return parse_request(body, unknown_fields="reject")


def refusal(body: Any) -> WireError:
    with pytest.raises(WireError) as caught:
        parse(body)
    to_json_bytes(caught.value.body)
    return caught.value


def same(error: WireError, expected: WireError) -> bool:
    return (error.status, error.body, error.headers) == (expected.status, expected.body, expected.headers)


def test_every_kind_of_question() -> None:
    parsed = parse(
        {
            "questions": {
                "b": {"criteria": {"x": None, "y": "Y", "z": {"covers": [1]}, "w": ""}, "type": "choice"},
                "a a.é": {"type": "score", "criteria": ["", ["mid"], {"top": 1}], "instructions": ["how"]},
                "n": {"type": "noul", "instructions": None, "criteria": {"false": "no"}, "weight": 3},
                "m": {"type": "noul", "instructions": {}, "criteria": None},
            },
            "model": "jev-1.14.0",
            "state": [],
        }
    )
    assert parsed == WireRequest(
        model="jev-1.14.0",
        state=[],
        questions=(
            Choice("b", None, (Option("x"), Option("y", "Y"), Option("z", {"covers": [1]}), Option("w"))),
            Score("a a.é", ["how"], ("", ["mid"], {"top": 1})),
            Noul("n", None, None, "no"),
            Noul("m", {}),
        ),
    )


@pytest.mark.parametrize("state", ["", {}, [], "text", {"a": {"b": None}}, [1.5, None, True]])
def test_states(state: Any) -> None:
    assert parse(request({"q": {"type": "noul", "instructions": "x"}}) | {"state": state}).state == state


@pytest.mark.parametrize(
    ("questions", "expected"),
    [
        ({"": {"type": "noul", "instructions": "x"}}, errors.empty_question_key()),
        ({"q": {"type": "choice", "criteria": {}}}, errors.no_choices("q")),
        ({"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(256)))}}, errors.too_many_choices()),
        ({"q": {"type": "score", "criteria": ["l"] * 11}}, errors.too_many_levels()),
        ({"q": {"type": "noul"}}, errors.empty_noul("q")),
        ({"q": {"type": "noul", "instructions": "", "criteria": {"true": "", "false": None}}}, errors.empty_noul("q")),
        ({"q": {"type": "boolean", "instructions": "x"}}, errors.invalid_request()),
        ({"q": {"type": "", "instructions": "x"}}, errors.invalid_request()),
        ({"q": {"type": "box", "instructions": "x"}}, errors.box_not_supported("q")),
    ],
)
def test_rules(questions: Any, expected: WireError) -> None:
    assert expected.status == 400
    assert same(refusal(request(questions)), expected)


def test_limits_are_inclusive() -> None:
    parsed = parse(
        request(
            {
                "c": {"type": "choice", "criteria": dict.fromkeys(map(str, range(255)))},
                "s": {"type": "score", "criteria": ["l"] * 10},
                "one": {"type": "choice", "criteria": {"": None}},
                "level": {"type": "score", "criteria": ["l"]},
            }
        )
    )
    assert [len(q.options) for q in parsed.questions if isinstance(q, Choice)] == [255, 1]
    assert [len(q.levels) for q in parsed.questions if isinstance(q, Score)] == [10, 1]


@pytest.mark.parametrize("tag", [5, True, ["noul"], {"a": 1}, 1.5])
def test_a_type_that_is_no_string_is_a_schema_error(tag: Any) -> None:
    error = refusal(request({"q": {"type": tag}}))
    assert error.status == 422
    assert [(e["type"], e["loc"]) for e in error.detail] == [("union_tag_invalid", ["body", "questions", "q"])]


def test_unknown_fields() -> None:
    body = request({"q": {"type": "noul", "instructions": "x"}}, stream=False)
    assert same(refusal(body), errors.invalid_request())
    assert parse_request(body, unknown_fields="ignore").state == "s"


def test_assets() -> None:
    question = {"q": {"type": "noul", "instructions": "x"}}
    assert parse(request(question, assets=None)).model == "jev-latest"
    present: list[Any] = [{}, {"pic": {"type": "image"}}, [], "x"]
    for assets in present:
        assert same(refusal(request(question, assets=assets)), errors.assets_not_supported())
        with pytest.raises(WireError, match="Assets"):
            parse_request(request(question, assets=assets), unknown_fields="ignore")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (request({"q": {"type": "nope"}}, extra=1, assets={}), errors.invalid_request()),
        (request({"q": {"type": "nope"}}, assets={}), errors.assets_not_supported()),
        ({"questions": {"a": "x", "q": {"type": "nope"}}}, errors.invalid_request()),
    ],
)
def test_order_of_checks(body: Any, expected: WireError) -> None:
    assert same(refusal(body), expected)


def test_schema_errors_come_before_rules_and_all_at_once() -> None:
    error = refusal(
        {"questions": {"": {"type": "noul"}, "a": {"type": "score", "criteria": [None]}, "b": 1}, "model": None}
    )
    assert error.status == 422
    assert [(e["type"], e["loc"]) for e in error.detail] == [
        ("missing", ["body", "state"]),
        ("string_type", ["body", "model"]),
        ("string_type", ["body", "questions", "a", "score", "criteria", 0, "str"]),
        ("dict_type", ["body", "questions", "a", "score", "criteria", 0, "dict[str,any]"]),
        ("list_type", ["body", "questions", "a", "score", "criteria", 0, "list[any]"]),
        ("model_attributes_type", ["body", "questions", "b"]),
    ]
    assert not any("url" in e for e in error.detail)


@pytest.mark.parametrize("half", ["\ud800", "a\udfffb", "\ud83d \ude00"])
def test_lone_surrogates(half: str) -> None:
    parsed = parse(
        request(
            {
                half: {"type": "choice", "criteria": {half: half}, half: half},
                "s": {"type": "score", "criteria": [half], "instructions": {half: [half]}},
                "n": {"type": "noul", "criteria": {"true": half}},
            }
        )
        | {"state": half, "model": half}
    )
    assert parsed.questions[0] == Choice(half, None, (Option(half, half),))
    for body in (
        request({half: {"type": "noul"}}),
        request({half: half}),
        request({half: {"type": half}}),
        request({half: {"type": ["x", half]}}),
        request({half: {"type": "choice", "criteria": {half: 1}}}),
        request({"q": {"type": "noul", "instructions": "x"}}, **{half: 1}),
        {half: half},
        half,
    ):
        assert refusal(body).status in {400, 422}


def test_faults_by_the_million_are_cheap() -> None:
    started = time.process_time()
    error = refusal(request({str(i): 0 for i in range(300_000)}))
    assert len(error.detail) == MAX_REPORTED_ERRORS
    error = refusal(request({"q": {"type": "score", "criteria": [0] * 1_000_000}}))
    assert len(error.detail) == 33
    error = refusal(request({"q": {"type": "choice", "criteria": dict.fromkeys(map(str, range(300_000)), 0)}}))
    assert len(error.detail) == 768
    assert time.process_time() - started < 5


def test_a_long_echo_gives_way_to_its_size() -> None:
    small = refusal(request({"q": {"type": "choice", "criteria": ["x" * 1000]}}))
    assert small.detail[0]["input"] == ["x" * 1000]
    long = "x" * 10_000_000
    error = refusal({"state": long, "model": long, "questions": {"q": [long], long: 5, "t": {"type": [long]}}})
    assert [e["input"] for e in error.detail] == [
        "<10000004 bytes, not echoed>",
        5,
        "<10000013 bytes, not echoed>",
    ]
    assert len(to_json_bytes(error.body)) < 20_000
    many = refusal(request({str(i): "y" * 1000 for i in range(900)}))
    assert len(to_json_bytes(many.body)) < 2 * MAX_ECHOED_BYTES


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NEARLY = st.fixed_dictionaries(
    {},
    optional={
        "state": JSON_VALUES,
        "model": st.text(max_size=3) | JSON_VALUES,
        "questions": st.dictionaries(
            st.text(max_size=2),
            st.fixed_dictionaries(
                {"type": st.sampled_from(["noul", "choice", "score"]) | JSON_VALUES},
                optional={"instructions": JSON_VALUES, "criteria": JSON_VALUES},
            )
            | JSON_VALUES,
            max_size=3,
        ),
    },
)


@given(NEARLY | JSON_VALUES)
def test_any_json_is_a_request_or_a_clear_refusal(body: Any) -> None:
    error = None
    try:
        parsed = parse(body)
    except WireError as refused:
        error = refused
    if error is None:
        assert [q.id for q in parsed.questions] == list(body["questions"])
    else:
        assert error.status in {400, 422}
        assert json.loads(to_json_bytes(error.body)) == error.body
