"""The request as pydantic models.

Clients of the dialect read pydantic's validation entries, so the models are shaped to produce them: a text is a
union of three members named `str`, `dict[str,any]` and `list[any]`, questions are a union tagged by `type`.

Strings are checked by type alone and not by pydantic's `str`, which refuses a lone surrogate (half an emoji, cut by
a client that counts UTF-16 units): such a string is legal JSON and gets an answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticKnownError, core_schema

from openjev_server.questions import Text
from openjev_server.wire.errors import MAX_CHOICES, MAX_LEVELS

__all__ = ["QUESTION", "SHELL", "AnyStr", "AnyText", "QuestionModel", "RequestModel"]


def _check_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise PydanticKnownError("string_type")


_STR = core_schema.no_info_plain_validator_function(_check_str)


class _StrMarker:
    """Annotates a string that may hold any code point JSON can spell."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _STR

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string"}


class _TextMarker:
    """Annotates a text: its three members carry the names that clients see in `loc`."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.union_schema(
            [
                (_STR, "str"),
                (core_schema.dict_schema(), "dict[str,any]"),
                (core_schema.list_schema(), "list[any]"),
            ],
            mode="left_to_right",
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}]}


AnyStr = Annotated[str, _StrMarker]
AnyText = Annotated[Text, _TextMarker]


class _Model(BaseModel):
    model_config = ConfigDict(from_attributes=True, extra="ignore")


class NoulCriteria(_Model):
    """What makes the answer yes and what makes it no; each side may be absent or null."""

    true: AnyText | None = None
    false: AnyText | None = None


class NoulModel(_Model):
    """A yes/no question. Instructions or at least one side of the criteria must say something."""

    type: Literal["noul"]
    instructions: AnyText | None = None
    criteria: NoulCriteria | None = None


class ChoiceModel(_Model):
    """Exactly one of 1 to 255 options; an option's description may be null."""

    type: Literal["choice"]
    instructions: AnyText | None = None
    criteria: Annotated[
        dict[AnyStr, AnyText | None], Field(json_schema_extra={"minProperties": 1, "maxProperties": MAX_CHOICES})
    ]


class ScoreModel(_Model):
    """One of 1 to 10 ordered levels."""

    type: Literal["score"]
    instructions: AnyText | None = None
    criteria: Annotated[list[AnyText], Field(min_length=1, json_schema_extra={"maxItems": MAX_LEVELS})]


QuestionModel = Annotated[NoulModel | ChoiceModel | ScoreModel, Field(discriminator="type")]


def _close(schema: dict[str, Any]) -> None:
    """Top-level fields are closed; `assets`, which only other servers read, may be null."""
    schema["properties"]["assets"] = {"type": "null"}
    schema["additionalProperties"] = False


class RequestModel(_Model):
    """A state and the questions about it."""

    model_config = ConfigDict(json_schema_extra=_close)

    state: AnyText
    model: AnyStr
    questions: Annotated[
        dict[AnyStr, QuestionModel],
        Field(min_length=1, json_schema_extra={"propertyNames": {"minLength": 1}}),
    ]


class _RequestShell(_Model):
    """`RequestModel` with its questions unread, so that they can be checked one by one."""

    state: AnyText
    model: AnyStr
    questions: Annotated[dict[AnyStr, Any], Field(min_length=1)]


SHELL: TypeAdapter[Any] = TypeAdapter(_RequestShell)
"""Checks a request but not what is in its questions."""
QUESTION: TypeAdapter[Any] = TypeAdapter(QuestionModel)
"""Checks one question."""
