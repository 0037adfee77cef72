"""The exceptions of typesafe-sdk, each also one of `openjev_sdk`'s.

::

    TypeSafeError (OpenJevError)
    ├── TypeSafeAPIConnectionError (APIConnectionError)
    │   └── TypeSafeAPITimeoutError (APITimeoutError)
    └── TypeSafeAPIError (APIError)
        ├── TypeSafeBadRequestError               400
        ├── TypeSafeAuthenticationError           401
        ├── TypeSafePermissionDeniedError         403
        ├── TypeSafeNotFoundError                 404
        ├── TypeSafeUnprocessableEntityError      422
        ├── TypeSafeRateLimitError                429
        ├── TypeSafeInternalServerError           500 and above
        └── TypeSafeAPIResponseValidationError    a success with an unusable body
"""

from __future__ import annotations

import time
from typing import Any

import httpx

from openjev_sdk._config import Timeout
from openjev_sdk._errors import APIConnectionError, APIError, APITimeoutError, OpenJevError, decode_body, endpoint_of
from openjev_sdk._retry import retry_after_s

__all__ = [
    "TypeSafeAPIConnectionError",
    "TypeSafeAPIError",
    "TypeSafeAPIResponseValidationError",
    "TypeSafeAPITimeoutError",
    "TypeSafeAuthenticationError",
    "TypeSafeBadRequestError",
    "TypeSafeError",
    "TypeSafeInternalServerError",
    "TypeSafeNotFoundError",
    "TypeSafePermissionDeniedError",
    "TypeSafeRateLimitError",
    "TypeSafeUnprocessableEntityError",
    "response_endpoint",
    "status_error",
]


class TypeSafeError(OpenJevError):
    """Base of all exceptions of this module."""


class TypeSafeAPIError(TypeSafeError, APIError):
    """An HTTP response that is not a success."""

    def __init__(
        self, status: int, body: Any, headers: httpx.Headers, message: str | None = None, endpoint: str | None = None
    ) -> None:
        super().__init__(status, body, headers, message, endpoint)

    def __str__(self) -> str:
        text = f"{self.status} {self.message}"
        if self.endpoint is not None:
            text = f"{self.endpoint}: {text}"
        return text if self.request_id is None else f"{text} (request_id={self.request_id})"


class TypeSafeBadRequestError(TypeSafeAPIError):
    """400."""


class TypeSafeAuthenticationError(TypeSafeAPIError):
    """401."""


class TypeSafePermissionDeniedError(TypeSafeAPIError):
    """403."""


class TypeSafeNotFoundError(TypeSafeAPIError):
    """404."""


class TypeSafeUnprocessableEntityError(TypeSafeAPIError):
    """422."""


class TypeSafeRateLimitError(TypeSafeAPIError):
    """429."""

    def __init__(
        self, status: int, body: object, headers: httpx.Headers, message: str | None = None, endpoint: str | None = None
    ) -> None:
        super().__init__(status, body, headers, message, endpoint)
        wait = retry_after_s(headers, time.time())
        self.retry_after_ms = None if wait is None else wait * 1000
        """Milliseconds that the host asks to wait; None when it does not say."""


class TypeSafeInternalServerError(TypeSafeAPIError):
    """500 and above."""


class TypeSafeAPIConnectionError(TypeSafeError, APIConnectionError):
    """No HTTP response arrived."""


class TypeSafeAPITimeoutError(TypeSafeAPIConnectionError, APITimeoutError):
    """No HTTP response arrived in time."""

    def __init__(self, timeout: Timeout) -> None:
        super().__init__(timeout)
        self.timeout = timeout
        """The setting that ran out."""

    def __str__(self) -> str:
        return f"no response in time (timeout={self.timeout})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class TypeSafeAPIResponseValidationError(TypeSafeAPIError):
    """A success whose body lacks something or holds it in the wrong shape."""

    def __init__(
        self, status: int, body: Any, headers: httpx.Headers, field_path: str, endpoint: str | None = None
    ) -> None:
        super().__init__(status, body, headers, f"the response is not valid at {field_path!r}", endpoint)
        self.args = (status, body, headers, field_path, endpoint)
        self.field_path = field_path
        """The first bad field: `answers.tone.confidence`."""


_BY_STATUS: dict[int, type[TypeSafeAPIError]] = {
    400: TypeSafeBadRequestError,
    401: TypeSafeAuthenticationError,
    403: TypeSafePermissionDeniedError,
    404: TypeSafeNotFoundError,
    422: TypeSafeUnprocessableEntityError,
    429: TypeSafeRateLimitError,
}


def status_error(response: httpx.Response) -> TypeSafeAPIError:
    """The exception for a read response that is not a success."""
    status = response.status_code
    error = _BY_STATUS.get(status, TypeSafeInternalServerError if status >= 500 else TypeSafeAPIError)
    return error(status, decode_body(response.content), response.headers, endpoint=response_endpoint(response))


def response_endpoint(response: httpx.Response) -> str | None:
    """Method and URL of the request, None for a response that was made without one."""
    try:
        return endpoint_of(response.request.method, response.request.url)
    except RuntimeError:
        return None
