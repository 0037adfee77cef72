"""Schemas in place of questions: what is asked, what comes back, what is refused and where."""

from __future__ import annotations

import asyncio
import enum
import json
from typing import Any, Literal

import httpx
import jsonschema
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mock_host import GOOD, Script, answer_first
from openjev_sdk import AnswerError, AsyncClient, Client, Noul, OpenJevError, SchemaDecision, SchemaError, UsageError


class Asked:
    """A handler that keeps the questions and answers yes, the first option, the last level."""

    def __init__(self) -> None:
        self.questions: dict[str, Any] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.questions = json.loads(request.content)["questions"]
        return answer_first(request)


def ask(schema: Any, handler: Any = None) -> tuple[SchemaDecision[Any], dict[str, Any]]:
    asked = handler or Asked()
    with Client(transport=httpx.MockTransport(asked)) as client:
        return client.decide("state", schema=schema), getattr(asked, "questions", {})


TICKET = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "title": "Ticket",
    "properties": {
        "is_urgent": {"type": "boolean"},
        "topic": {
            "title": "The topic",
            "description": "what it is about",
            "enum": ["billing", "technical"],
            "enumDescriptions": ["Payments", None],
        },
        "customer": {
            "type": "object",
            "description": "The customer",
            "properties": {
                "anger": {"$ref": "#/$defs/anger", "title": "How angry?"},
                "tier": {
                    "oneOf": [{"const": 1, "title": "free"}, {"const": 5, "description": "pays"}, {"const": None}]
                },
            },
            "required": ["anger"],
            "additionalProperties": False,
        },
        "version": {"const": 2},
    },
    "required": ["is_urgent", "version"],
    "additionalProperties": False,
    "$defs": {
        "anger": {"type": "integer", "minimum": 1, "maximum": 3, "enumDescriptions": ["calm", "annoyed", "furious"]}
    },
}


def test_one_question_per_value() -> None:
    decision, questions = ask(TICKET)
    assert questions == {
        "is_urgent": {"type": "noul", "instructions": "is urgent"},
        "topic": {
            "type": "choice",
            "instructions": "The topic: what it is about",
            "criteria": {"billing": "Payments", "technical": None},
        },
        "customer.anger": {
            "type": "score",
            "instructions": "The customer > How angry?",
            "criteria": ["calm", "annoyed", "furious"],
        },
        "customer.tier": {
            "type": "choice",
            "instructions": "The customer > tier",
            "criteria": {"1": "free", "5": "pays", "null": None},
        },
    }
    assert decision.value == {
        "is_urgent": True,
        "topic": "billing",
        "customer": {"anger": 3, "tier": 1},
        "version": 2,
    }
    assert list(decision.answers) == list(questions)
    assert decision.decision.model == GOOD["model"]
    jsonschema.validate(decision.value, TICKET)


@pytest.mark.parametrize(
    ("schema", "value", "kind"),
    [
        ({"type": "boolean", "description": "Is it?"}, True, "noul"),
        ({"enum": ["b", "a"]}, "b", "choice"),
        ({"type": ["string"], "enum": ["only"]}, "only", "choice"),
        ({"enum": [3, 1]}, 3, "choice"),
        ({"enum": [1, 2]}, 1, "choice"),
        ({"enum": [1, 2], "enumDescriptions": ["low", "high"]}, 2, "score"),
        ({"enum": [False, True], "description": "Is it?"}, True, "noul"),
        ({"enum": [True, "true?"]}, True, "choice"),
        ({"anyOf": [{"const": True, "description": "is"}, {"const": False}]}, True, "noul"),
        ({"type": "integer", "oneOf": [{"const": 4, "description": "a"}, {"const": 5, "title": "b"}]}, 5, "score"),
        (
            {"type": "integer", "exclusiveMinimum": -1, "exclusiveMaximum": 2, "enumDescriptions": ["low", {"h": 1}]},
            1,
            "score",
        ),
        ({"type": "integer", "minimum": 7, "maximum": 7, "enumDescriptions": ["only"]}, 7, "score"),
        ({"allOf": [{"$ref": "#/$defs/a~1b"}], "$defs": {"a/b": {"type": "boolean"}}, "title": "T"}, True, "noul"),
        ({"$ref": "#/$defs/x%25y", "$defs": {"x%y": {"type": "boolean"}}, "title": "T"}, True, "noul"),
        ({"enum": [{"a": 1}, [2]]}, {"a": 1}, "choice"),
    ],
)
def test_a_schema_that_is_no_object(schema: dict[str, Any], value: Any, kind: str) -> None:
    decision, questions = ask(schema)
    assert decision.value == value
    assert type(decision.value) is type(value)
    assert (list(questions), questions["value"]["type"]) == (["value"], kind)
    jsonschema.validate(decision.value, schema)


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


DESCRIBED = {"enumDescriptions": ["x"] * 11}


@pytest.mark.parametrize(
    ("schema", "path", "problem"),
    [
        (of(a={"type": "string"}), "$.properties.a", "enum"),
        (of(a={"type": "number", "minimum": 0, "maximum": 1}), "$.properties.a", "bounded integer"),
        (of(a={"type": "array", "items": {"enum": ["x"]}}), "$.properties.a", "list"),
        (of(a={"type": "null"}), "$.properties.a", "null"),
        (of(a={}), "$.properties.a", "says nothing"),
        (of(a=True), "$.properties.a", "schema object"),
        (of(a={"type": "integer", "minimum": 0}), "$.properties.a", "maximum"),
        (of(a={"type": "integer", "minimum": 0, "maximum": 2}), "$.properties.a", "enumDescriptions"),
        (of(a={"type": "integer", "minimum": 0, "maximum": 10, **DESCRIBED}), "$.properties.a", "1 to 10"),
        (of(a={"type": "integer", "minimum": 0, "maximum": 3, **DESCRIBED}), "$.properties.a", "list of 4"),
        (
            of(a={"type": "integer", "minimum": 3, "maximum": 1, "enumDescriptions": []}),
            "$.properties.a",
            "0 levels|list of",
        ),
        (of(a={"type": "integer", "minimum": 0.5, "maximum": 1, **DESCRIBED}), "$.properties.a", "not of type integer"),
        (of(a={"type": "integer", "minimum": 1, "maximum": 1, "enumDescriptions": [None]}), "$.properties.a", "every"),
        (of(a={"type": "integer", "minimum": 0, "maximum": 2, "multipleOf": 2}), "$.properties.a", "multipleOf"),
        (of(a={"type": "string", "enum": ["x", 1]}), "$.properties.a", "1 is not of type string"),
        (of(a={"type": "integer", "enum": [1, True]}), "$.properties.a", "True is not of type"),
        (of(a={"enum": []}), "$.properties.a", "not empty"),
        (of(a={"enum": ["1", 1]}), "$.properties.a", "look the same"),
        (of(a={"enum": [str(n) for n in range(256)]}), "$.properties.a", "at most 255"),
        (of(a={"enum": ["x"], "pattern": "^x"}), "$.properties.a", "pattern"),
        (of(a={"anyOf": [{"type": "boolean"}, {"type": "null"}]}), "$.properties.a", "optional"),
        (of(a={"anyOf": [{"type": "boolean"}, {"const": 1}]}), "$.properties.a", "every entry of anyOf"),
        (of(a={"anyOf": [{"const": 1}, {"type": "null"}]}), "$.properties.a", "optional"),
        (of(a={"type": ["boolean", "null"]}), "$.properties.a", "optional"),
        (of(a={"type": ["boolean", "integer"]}), "$.properties.a", "several types"),
        (of(a={"type": "boolean", "not": {"const": True}}), "$.properties.a", "not cannot"),
        (of(a={"allOf": [{"type": "boolean"}, {"const": True}]}), "$.properties.a", "allOf"),
        (of(a={"$ref": "#/$defs/missing"}), "$.properties.a", "nowhere"),
        (of(a={"$ref": "other.json"}), "$.properties.a", "out of the schema"),
        (of(a={"$ref": "#"}), "$.properties.a.properties.a", "contains itself"),
        (
            {**of(a={"$ref": "#/$defs/b", "type": "integer"}), "$defs": {"b": {"type": "boolean"}}},
            "$.properties.a",
            r"type beside \$ref",
        ),
        (of(a=of(b={"type": "string"})), "$.properties.a.properties.b", "enum"),
        (of(**{"a b": {"type": "string"}}), '$.properties["a b"]', "enum"),
        (of(**{"": {"type": "boolean"}}), "$", "without a name"),
        (
            of(**{"a.b": {"type": "boolean"}, "a": of(b={"type": "boolean"})}),
            "$.properties.a.properties.b",
            "question id",
        ),
        ({**of(a={"type": "boolean"}), "required": ["b"]}, "$", "'b'"),
        ({**of(a={"type": "boolean"}), "minProperties": 2}, "$", "minProperties"),
        (of(a={"const": 1}), "$", "nothing to decide"),
        (of(), "$", "nothing to decide"),
        ({"type": "object", "properties": []}, "$", "properties"),
        ({"type": "spam"}, "$", "says nothing"),
    ],
)
def test_everything_else_is_refused_by_its_path(schema: Any, path: str, problem: str) -> None:
    script = Script([GOOD])
    with pytest.raises(SchemaError, match=problem) as caught:
        ask(schema, script)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")
    assert script.requests == []


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "did not answer"),
        ({"type": "choice", "choice": "c", "confidence": 1.0, "probabilities": {"c": 1.0}}, "'c', which was not asked"),
        ({"type": "noul", "noul": 1.0}, "with a NoulAnswer"),
    ],
)
def test_answers_that_do_not_fit_are_an_error(answer: Any, problem: str) -> None:
    body = {**GOOD, "answers": {} if answer is None else {"a": answer}}
    with pytest.raises(AnswerError, match=problem) as caught:
        ask(of(a={"enum": ["a", "b"]}), Script([body]))
    assert caught.value.path == "$.properties.a"
    assert isinstance(caught.value, OpenJevError)


def test_a_level_that_was_not_asked_for_is_an_error() -> None:
    answer = {"type": "score", "score": 7.0, "confidence": 1.0, "legend": {}, "probabilities": {"7": 1.0}}
    schema = {"type": "integer", "minimum": 1, "maximum": 2, "enumDescriptions": ["a", "b"]}
    with pytest.raises(AnswerError, match="7"):
        ask(schema, Script([{**GOOD, "answers": {"value": answer}}]))


def test_either_questions_or_a_schema() -> None:
    with Client() as client:
        for arguments in ({}, {"questions": {"q": Noul("?")}, "schema": {"type": "boolean"}}, {"schema": "boolean"}):
            with pytest.raises(UsageError):
                client.decide("state", **arguments)


class Mood(enum.StrEnum):
    """How one sounds."""

    CALM = "calm"
    ANGRY = "angry"


class Customer(pydantic.BaseModel):
    mood: Mood
    plan: Literal["free", "paid"] = pydantic.Field(default="free", description="Which plan?")


class Triage(pydantic.BaseModel):
    """A support request."""

    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    urgent: bool = pydantic.Field(alias="isUrgent", description="Today?")
    anger: int = pydantic.Field(ge=1, le=3, json_schema_extra={"enumDescriptions": ["calm", "annoyed", "furious"]})
    customer: Customer
    kind: Literal["ticket"]


def test_a_pydantic_model_class_gives_an_instance() -> None:
    decision, questions = ask(Triage)
    assert decision.value == Triage(
        isUrgent=True, anger=3, customer=Customer(mood=Mood.CALM, plan="free"), kind="ticket"
    )
    assert decision.value.customer.mood is Mood.CALM
    assert {name: question["instructions"] for name, question in questions.items()} == {
        "isUrgent": "Today?",
        "anger": "anger",
        "customer.mood": "customer > mood: How one sounds.",
        "customer.plan": "customer > Which plan?",
    }


def test_a_model_class_may_refuse() -> None:
    class Picky(pydantic.BaseModel):
        ok: bool

        @pydantic.field_validator("ok")
        @classmethod
        def never(cls, value: bool) -> bool:
            raise ValueError("never")

    with pytest.raises(AnswerError, match="Picky refuses"):
        ask(Picky)


def test_models_with_more_than_that_are_refused_by_path() -> None:
    class Free(pydantic.BaseModel):
        text: str

    class Optional(pydantic.BaseModel):
        maybe: bool | None

    for model, path in ((Free, "$.properties.text"), (Optional, "$.properties.maybe")):
        with pytest.raises(SchemaError) as caught:
            ask(model)
        assert caught.value.path == path


def test_the_asyncio_client_does_the_same() -> None:
    async def run() -> SchemaDecision[Triage]:
        async with AsyncClient(transport=httpx.MockTransport(answer_first)) as client:
            return await client.decide("state", schema=Triage)

    assert isinstance(asyncio.run(run()).value, Triage)


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1, max_size=8)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
leaf_schemas = st.one_of(
    st.builds(lambda text: {"type": "boolean", "description": text}, texts),
    st.lists(texts, min_size=1, max_size=5, unique=True).map(lambda values: {"type": "string", "enum": values}),
    st.lists(st.integers(-9, 9), min_size=1, max_size=4, unique=True).map(lambda v: {"type": "integer", "enum": v}),
    st.builds(
        lambda low, levels: {
            "type": "integer",
            "minimum": low,
            "maximum": low + len(levels) - 1,
            "enumDescriptions": levels,
        },
        st.integers(-99, 99),
        st.lists(texts, min_size=1, max_size=10),
    ),
    st.booleans().map(lambda value: {"const": value}),
)
object_schemas = st.recursive(
    st.dictionaries(names, leaf_schemas, min_size=1, max_size=3),
    lambda children: st.dictionaries(
        names, st.one_of(leaf_schemas, children.map(lambda p: of(**p))), min_size=1, max_size=3
    ),
    max_leaves=6,
)


@given(object_schemas)
def test_every_value_validates(properties: dict[str, Any]) -> None:
    schema = {**of(**properties), "required": list(properties), "additionalProperties": False}
    try:
        decision, _ = ask(schema, answer_first)
    except SchemaError as error:
        assert error.problem == "the schema leaves nothing to decide"  # noqa: PT017 - constants only
        return
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(decision.value, schema)
