"""Filling in a JSON Schema, by asking one question per value.

What a schema may hold, anything else being a `SchemaError` that names the place:

=====================================================  ==========================================================
an object with `properties`, nested as deep as needed  one question per leaf, its id the path: `ticket.urgent`
`boolean`                                              noul
`enum`, or `oneOf`/`anyOf` of `const` entries          choice; a `description` per entry describes the option
`const`                                                no question, the value stands
`integer` from `minimum` to `maximum` with one         score, one level per integer
`enumDescriptions` entry for each integer
`integer` with `oneOf`/`anyOf` of consecutive `const`  score
integers that all have a `description`
`$ref` into the same document, `allOf` of one schema   what they stand for
=====================================================  ==========================================================

`enumDescriptions` also describes the entries of an `enum`. `title` and `description` become the instructions, those
of enclosing properties in front; a property without either asks by its name. The value takes the likeliest option, yes
at 0.5 and above, and the likeliest level.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast

from openjev_sdk._answers import Answer, Decision
from openjev_sdk._errors import AnswerError, SchemaError, UsageError
from openjev_sdk._frozen import FrozenMapping
from openjev_sdk._leaves import Leaf, ObjectNode, fill, leaves, read_schema
from openjev_sdk._questions import Questions

__all__ = ["Plan", "QuestionPlan", "SchemaDecision", "SchemaModel", "SchemaPlan", "plan_for"]

T = TypeVar("T")


class SchemaModel(Protocol):
    """What this package needs of a pydantic model class."""

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...

    @classmethod
    def model_validate_json(cls, json_data: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class SchemaDecision(Generic[T]):
    """A value that validates against the schema, and how it came about."""

    value: T
    """Plain JSON data; an instance where the schema was a pydantic model class."""
    decision: Decision

    @property
    def answers(self) -> FrozenMapping[str, Answer]:
        """The answers under their paths: `ticket.urgent`; of a schema that is no object, under `value`."""
        return self.decision.answers


class Plan(Protocol):
    """What to ask, and what to make of the answers."""

    @property
    def questions(self) -> Questions: ...

    def finish(self, decision: Decision) -> Decision | SchemaDecision[Any]: ...


@dataclass(frozen=True, slots=True)
class QuestionPlan:
    """Questions of the caller's own; the decision is the result."""

    questions: Questions

    def finish(self, decision: Decision) -> Decision:
        """The decision."""
        return decision


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """The questions of a schema."""

    root: ObjectNode | Leaf
    model: type[SchemaModel] | None
    questions: Questions

    def finish(self, decision: Decision) -> SchemaDecision[Any]:
        """The value that the answers stand for.

        Raises:
            AnswerError: an answer is missing or not one of those allowed, or the model class's own validators refuse.
        """
        value = fill(self.root, decision.answers)
        if self.model is None:
            return SchemaDecision(value, decision)
        try:
            return SchemaDecision(self.model.model_validate_json(json.dumps(value)), decision)
        except ValueError as error:
            raise AnswerError("$", f"{self.model.__name__} refuses the answers: {error}") from error


def plan_for(questions: Questions | None, schema: Mapping[str, Any] | type[Any] | None) -> Plan:
    """The plan for what a caller passed.

    Raises:
        UsageError: both or neither were passed.
        SchemaError: the schema holds something that no question can express.
    """
    if (questions is None) == (schema is None):
        raise UsageError("pass either questions or a schema")
    if questions is not None:
        return QuestionPlan(questions)
    model: type[SchemaModel] | None = None
    if isinstance(schema, Mapping):
        document = schema
    elif hasattr(schema, "model_json_schema"):
        model = cast(type[SchemaModel], schema)
        document = model.model_json_schema()
    else:
        raise UsageError(f"a schema must be a mapping or a pydantic model class, not {schema!r}")
    root = read_schema(document)
    asked = {leaf.id: leaf.question for leaf in leaves(root) if leaf.question is not None}
    if not asked:
        raise SchemaError("$", "the schema leaves nothing to decide")
    return SchemaPlan(root, model, asked)
