"""Every exception that this package raises on purpose.

::

    OpenJevError
    ├── UsageError (ValueError)              the call cannot be sent: a setting, state, question or option
    │   └── SchemaError                      a JSON Schema that cannot become questions; `.path` says where
    ├── AnswerError                          answers that cannot fill in the schema; `.path` says where
    ├── APIConnectionError (ConnectionError) no HTTP response arrived
    │   └── APITimeoutError (TimeoutError)   ... in time
    └── APIError                             an HTTP response that is not an answer
        ├── BadRequestError                  400
        ├── AuthenticationError              401
        ├── PermissionDeniedError            403
        ├── NotFoundError                    404
        ├── RequestTimeoutError              408
        ├── ContentTooLargeError             413
        ├── UnprocessableEntityError         422
        ├── RateLimitError                   429
        ├── InternalServerError              500 and above
        │   ├── ServiceUnavailableError      503
        │   └── OverloadedError              529
        └── ResponseError                    a success whose body does not hold what it must
"""

from __future__ import annotations

import json
from typing import Any

import httpx

from openjev_sdk._constants import REQUEST_ID_HEADER

__all__ = [
    "APIConnectionError",
    "APIError",
    "APITimeoutError",
    "AnswerError",
    "AuthenticationError",
    "BadRequestError",
    "ContentTooLargeError",
    "InternalServerError",
    "NotFoundError",
    "OpenJevError",
    "OverloadedError",
    "PermissionDeniedError",
    "RateLimitError",
    "RequestTimeoutError",
    "ResponseError",
    "SchemaError",
    "ServiceUnavailableError",
    "UnprocessableEntityError",
    "UsageError",
    "api_error",
    "decode_body",
    "endpoint_of",
    "error_message",
    "shown_message",
]

_SHOWN_CHARACTERS = 200
_MEANINGS = {
    "max_tokens_exceeded": "max_tokens_exceeded: state and questions are longer than the host takes; "
    "shorten the state, or ask in several requests"
}
"""Error types that come without a message."""


class OpenJevError(Exception):
    """Base of every exception of this package."""


class UsageError(OpenJevError, ValueError):
    """The call cannot be sent as it stands. Raised before anything goes out."""


class SchemaError(UsageError):
    """A JSON Schema holds something that no question can express."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        """Where in the schema, as a JSONPath from the root: `$.properties.mood`."""
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class AnswerError(OpenJevError):
    """The answers cannot fill in the schema: one is missing, none of those allowed, or refused by the model class."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        """Where in the schema, as a JSONPath from the root."""
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class APIConnectionError(OpenJevError, ConnectionError):
    """No HTTP response arrived."""


class APITimeoutError(APIConnectionError, TimeoutError):
    """No HTTP response arrived in time."""


class APIError(OpenJevError):
    """An HTTP response that is not an answer."""

    def __init__(
        self, status: int, body: Any, headers: httpx.Headers, message: str | None = None, endpoint: str | None = None
    ) -> None:
        super().__init__(status, body, headers, message, endpoint)
        self.status = status
        """HTTP status."""
        self.body = body
        """The body: parsed JSON, else its text, None when empty."""
        self.headers = headers
        """Response headers."""
        self.message = shown_message(body) if message is None else message
        """What the server said went wrong."""
        self.endpoint = endpoint
        """Method and URL without credentials, query and fragment; None when unknown."""

    @property
    def request_id(self) -> str | None:
        """The server's id of the request, for its logs; None when it sent none."""
        value: str | None = self.headers.get(REQUEST_ID_HEADER)
        return value

    def __str__(self) -> str:
        text = f"{self.status} {self.message}"
        if self.endpoint is not None:
            text = f"{self.endpoint}: {text}"
        return text if self.request_id is None else f"{text} (request id {self.request_id})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


class BadRequestError(APIError):
    """400: the request breaks a rule of the API."""


class AuthenticationError(APIError):
    """401: the API key is not known."""


class PermissionDeniedError(APIError):
    """403: no API key came along, or it may not do this."""


class NotFoundError(APIError):
    """404: the host has no such path."""


class RequestTimeoutError(APIError):
    """408: the host gave up waiting for the request."""


class ContentTooLargeError(APIError):
    """413: the body exceeds the host's limit."""


class UnprocessableEntityError(APIError):
    """422: the body does not have the shape of a request."""


class RateLimitError(APIError):
    """429: too many requests."""


class InternalServerError(APIError):
    """500 and above: the host failed."""


class ServiceUnavailableError(InternalServerError):
    """503: the host is not ready."""


class OverloadedError(InternalServerError):
    """529: the host has more work than it can queue."""


class ResponseError(APIError):
    """A success whose body does not hold what it must; the message names the place."""


_BY_STATUS: dict[int, type[APIError]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    408: RequestTimeoutError,
    413: ContentTooLargeError,
    422: UnprocessableEntityError,
    429: RateLimitError,
    503: ServiceUnavailableError,
    529: OverloadedError,
}


def api_error(response: httpx.Response) -> APIError:
    """The exception for a read response that is not a success."""
    status = response.status_code
    error = _BY_STATUS.get(status, InternalServerError if status >= 500 else APIError)
    endpoint = endpoint_of(response.request.method, response.request.url)
    body = decode_body(response.content)
    detail = body.get("detail") if isinstance(body, dict) else None
    meaning = _MEANINGS.get(str(detail.get("error_type"))) if isinstance(detail, dict) else None
    return error(status, body, response.headers, error_message(body) or meaning, endpoint=endpoint)


def decode_body(content: bytes) -> Any:
    """Parsed JSON, else the text, None when empty."""
    if not content:
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content.decode("utf-8", errors="replace")


def endpoint_of(method: str, url: httpx.URL | str) -> str:
    """Method and URL, fit for a log: no credentials, query or fragment."""
    return f"{method} {httpx.URL(url).copy_with(userinfo=b'', query=None, fragment=None)}"


def error_message(body: Any) -> str | None:
    """The human message of an error body in any shape that System One hosts use; None when there is none.

    Looked up in this order: the body itself as a string, `error`, `error.message`, `message`, `detail`,
    `detail.message`, and the entries of a `detail` list.
    """
    if isinstance(body, str):
        return body or None
    if not isinstance(body, dict):
        return None
    for candidate in (body.get("error"), body.get("message"), body.get("detail")):
        if isinstance(candidate, str):
            return candidate
        if isinstance(candidate, dict) and isinstance(candidate.get("message"), str):
            return str(candidate["message"])
    detail = body.get("detail")
    if not isinstance(detail, list):
        return None
    return "; ".join(text for text in map(_entry_message, detail) if text is not None) or None


def _entry_message(entry: Any) -> str | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("msg"), str):
        return None
    location = entry.get("loc")
    place = ".".join(str(part) for part in location if part != "body") if isinstance(location, list) else ""
    return f"{place}: {entry['msg']}" if place else str(entry["msg"])


def shown_message(body: Any) -> str:
    """The message of an error body, else the start of the body itself."""
    message = error_message(body)
    if message:
        return message
    if body is None:
        return "(no body)"
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
