"""The answers as pydantic models, for the published schemas only: answers are built as plain dicts."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from openjev_server.wire.errors import MAX_CHOICES, MAX_LEVELS
from openjev_server.wire.schema import AnyText

__all__ = ["ErrorModel", "ListingModel", "ResponseModel"]

Share = Annotated[float, Field(ge=0, le=1)]
"""A probability or a confidence."""
Level = Annotated[str, Field(pattern="^[0-9]$")]
_LEVELS = Field(min_length=1, max_length=MAX_LEVELS, json_schema_extra={"additionalProperties": False})


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NoulAnswer(_Closed):
    """The probability that the answer is yes."""

    type: Literal["noul"]
    noul: Share


class ChoiceAnswer(_Closed):
    """The chosen option and the probability of each, in request order; they sum to exactly 1."""

    type: Literal["choice"]
    choice: str
    confidence: Share
    probabilities: Annotated[dict[str, Share], Field(min_length=1, max_length=MAX_CHOICES)]


class ScoreAnswer(_Closed):
    """The expected level, counted from 0, and the probability of each level; they sum to exactly 1."""

    type: Literal["score"]
    score: Annotated[float, Field(ge=0, le=MAX_LEVELS - 1)]
    confidence: Share
    legend: Annotated[dict[Level, AnyText], _LEVELS]
    probabilities: Annotated[dict[Level, Share], _LEVELS]


class Usage(_Closed):
    """Tokens read and written, as if nothing were cached."""

    input_tokens: Annotated[int, Field(ge=0)]
    output_tokens: Annotated[int, Field(ge=0)]


class ResponseModel(_Closed):
    """One answer per question, under the question's key."""

    model: str
    answers: dict[str, Annotated[NoulAnswer | ChoiceAnswer | ScoreAnswer, Field(discriminator="type")]]
    usage: Usage


class TypedDetail(_Closed):
    """What kind of refusal it is, and mostly why."""

    error_type: str
    message: str = ""


class ValidationEntry(_Closed):
    """One fault of the request and where it is."""

    type: str
    loc: list[str | int]
    msg: str
    input: Any
    ctx: dict[str, Any] = {}


class ErrorModel(_Closed):
    """Every response that is not a success."""

    detail: str | TypedDetail | Annotated[list[ValidationEntry], Field(min_length=1)]


class ListedModel(_Closed):
    """A name that requests may give as `model`."""

    name: str
    description: str
    release_date: str


class OpenAIModel(_Closed):
    """The same name as an entry of an OpenAI model list."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class CalibratedModel(_Closed):
    """Answers that are calibrated: for these types, in this layout and at this number of steps."""

    layout: str
    steps: int
    types: list[Literal["choice", "noul", "score"]]
    hash: str
    fitted_on: str


class CalibrationModel(_Closed):
    """What calibrates the probabilities of this server; `none`: they are as the model gives them."""

    status: Literal["fitted", "none"]
    source: str | None = None
    note: str | None = None
    reason: str | None = None
    template: str | None = None
    template_hash: str | None = None
    weights_hash: str | None = None
    entries: list[CalibratedModel] = []


class ListingModel(_Closed):
    """The models, and beside them the same list in OpenAI's form."""

    models: list[ListedModel]
    object: Literal["list"] = "list"
    data: list[OpenAIModel] = []
    calibration: CalibrationModel | None = None
