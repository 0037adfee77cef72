"""The text-related names of typesafe-sdk 0.7.5, with equal signatures, over this package.

Moving is one changed import: `from openjev_sdk.compat import TypeSafeClient, Noul, Choice, Score`.

What differs, since httpx is the only dependency here:

- Classes are dataclasses, not pydantic models; of pydantic's methods, `model_dump`, `model_validate`, both for
  JSON too, and `model_copy` are there, and wrong arguments raise `TypeError` or `ValueError`.
- `httpx` where the official client has `httpx2`: transports, clients, timeouts, headers.
- No images: `Asset`, `Image`, `Box...`, `attach_assets` are absent, `assets=` is refused.
- The default host is this machine, `OPENJEV_*` variables come first, and no key is needed; see `constants`.
"""

from __future__ import annotations

from openjev_sdk._version import __version__
from openjev_sdk.compat import constants
from openjev_sdk.compat._answers import (
    Answer,
    ChoiceAnswer,
    ModelMetadata,
    NoulAnswer,
    ScoreAnswer,
    Usage,
)
from openjev_sdk.compat._async_client import AsyncModels, AsyncTypeSafeClient
from openjev_sdk.compat._client import Models, TypeSafeClient
from openjev_sdk.compat._content import Content, ContentValue, JSONContent, JSONValue
from openjev_sdk.compat._errors import (
    TypeSafeAPIConnectionError,
    TypeSafeAPIError,
    TypeSafeAPIResponseValidationError,
    TypeSafeAPITimeoutError,
    TypeSafeAuthenticationError,
    TypeSafeBadRequestError,
    TypeSafeError,
    TypeSafeInternalServerError,
    TypeSafeNotFoundError,
    TypeSafePermissionDeniedError,
    TypeSafeRateLimitError,
    TypeSafeUnprocessableEntityError,
)
from openjev_sdk.compat._questions import (
    Choice,
    ChoiceModel,
    Noul,
    NoulCriteria,
    NoulModel,
    Question,
    QuestionModel,
    Questions,
    Score,
    ScoreModel,
)
from openjev_sdk.compat._responses import ListModelsResponse, SystemOneResponse
from openjev_sdk.compat._retry import RetryPolicy

__all__ = [
    "Answer",
    "AsyncModels",
    "AsyncTypeSafeClient",
    "Choice",
    "ChoiceAnswer",
    "ChoiceModel",
    "Content",
    "ContentValue",
    "JSONContent",
    "JSONValue",
    "ListModelsResponse",
    "ModelMetadata",
    "Models",
    "Noul",
    "NoulAnswer",
    "NoulCriteria",
    "NoulModel",
    "Question",
    "QuestionModel",
    "Questions",
    "RetryPolicy",
    "Score",
    "ScoreAnswer",
    "ScoreModel",
    "SystemOneResponse",
    "TypeSafeAPIConnectionError",
    "TypeSafeAPIError",
    "TypeSafeAPIResponseValidationError",
    "TypeSafeAPITimeoutError",
    "TypeSafeAuthenticationError",
    "TypeSafeBadRequestError",
    "TypeSafeClient",
    "TypeSafeError",
    "TypeSafeInternalServerError",
    "TypeSafeNotFoundError",
    "TypeSafePermissionDeniedError",
    "TypeSafeRateLimitError",
    "TypeSafeUnprocessableEntityError",
    "Usage",
    "__version__",
    "constants",
]
