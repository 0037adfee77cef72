"""Typed decisions with probabilities from a System One host: OpenJev, or the hosted API.

from openjev_sdk import Choice, Client, Noul, Score

with Client() as client:
    decision = client.decide(
        "I was charged twice. Please help!",
        {
            "urgent": Noul("Does the customer need an answer today?"),
            "topic": Choice("What is it about?", {"billing": "Money", "technical": None}),
            "anger": Score("How angry is the customer?", ["Calm", "Annoyed", "Furious"]),
        },
    )
decision["topic"].decided(min_confidence=0.8)  # "billing", or None when it is not that sure
"""

from __future__ import annotations

from openjev_sdk._answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    Model,
    NoulAnswer,
    ScoreAnswer,
    UnknownAnswer,
    Usage,
)
from openjev_sdk._async_client import AsyncClient
from openjev_sdk._client import Client
from openjev_sdk._errors import (
    AnswerError,
    APIConnectionError,
    APIError,
    APITimeoutError,
    AuthenticationError,
    BadRequestError,
    ContentTooLargeError,
    InternalServerError,
    NotFoundError,
    OpenJevError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
    RequestTimeoutError,
    ResponseError,
    SchemaError,
    ServiceUnavailableError,
    UnprocessableEntityError,
    UsageError,
)
from openjev_sdk._options import Options
from openjev_sdk._questions import Choice, Noul, Question, Questions, Score, Text
from openjev_sdk._recording import AsyncRecordingTransport, RecordingTransport
from openjev_sdk._retry import Clock
from openjev_sdk._schema import SchemaDecision
from openjev_sdk._version import __version__

__all__ = [
    "APIConnectionError",
    "APIError",
    "APITimeoutError",
    "Answer",
    "AnswerError",
    "AsyncClient",
    "AsyncRecordingTransport",
    "AuthenticationError",
    "BadRequestError",
    "Choice",
    "ChoiceAnswer",
    "Client",
    "Clock",
    "ContentTooLargeError",
    "Decision",
    "InternalServerError",
    "Model",
    "NotFoundError",
    "Noul",
    "NoulAnswer",
    "OpenJevError",
    "Options",
    "OverloadedError",
    "PermissionDeniedError",
    "Question",
    "Questions",
    "RateLimitError",
    "RecordingTransport",
    "RequestTimeoutError",
    "ResponseError",
    "SchemaDecision",
    "SchemaError",
    "Score",
    "ScoreAnswer",
    "ServiceUnavailableError",
    "Text",
    "UnknownAnswer",
    "UnprocessableEntityError",
    "Usage",
    "UsageError",
    "__version__",
]
