"""Every refusal the server can utter: one constructor per row of the wire contract's error table.

`detail` has one of three shapes, as clients of the dialect expect: a string, `{"error_type", "message"}`, or a
list of validation entries (`type`, `loc`, `msg`, `input`, and sometimes `ctx`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "MAX_CHOICES",
    "MAX_LEVELS",
    "WireError",
    "assets_not_supported",
    "body_too_large",
    "box_not_supported",
    "empty_noul",
    "empty_question_key",
    "header_too_large",
    "internal_error",
    "invalid_header",
    "invalid_json",
    "invalid_request",
    "malformed_body",
    "malformed_http",
    "max_tokens_exceeded",
    "method_not_allowed",
    "missing_body",
    "missing_key",
    "nesting_too_deep",
    "no_choices",
    "not_an_object",
    "not_found",
    "not_ready",
    "overloaded",
    "request_timeout",
    "stopping",
    "too_many_choices",
    "too_many_levels",
    "too_many_values",
    "unknown_model",
    "unsupported_encoding",
    "usage_error",
    "validation",
    "wrong_key",
]

MAX_CHOICES = 255
MAX_LEVELS = 10

ErrorEntry = dict[str, Any]


class WireError(Exception):
    """A request that is answered with an error status and `{"detail": ...}`."""

    def __init__(self, status: int, detail: Any, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.headers: dict[str, str] = dict(headers or {})

    @property
    def body(self) -> dict[str, Any]:
        return {"detail": self.detail}


def _typed(status: int, error_type: str, message: str, headers: Mapping[str, str] | None = None) -> WireError:
    return WireError(status, {"error_type": error_type, "message": message}, headers)


# Who asks.


def missing_key() -> WireError:
    """403: no Authorization header, or one that is not a Bearer header."""
    return _typed(403, "authentication_error", "Must supply an API key! Check your request and try again.")


def wrong_key() -> WireError:
    """401: a Bearer key that the server does not know."""
    message = "Cannot authenticate with the server. Please check your API key and try again."
    return _typed(401, "authentication_error", message)


# Where it is asked.


def not_found() -> WireError:
    return WireError(404, "Not Found")


def method_not_allowed(allow: str) -> WireError:
    return WireError(405, "Method Not Allowed", {"Allow": allow})


# The request as bytes.


def malformed_http() -> WireError:
    """400: bytes that are no HTTP request."""
    return WireError(400, "Invalid HTTP request received.")


def header_too_large(limit: int) -> WireError:
    """431: request line and headers of more than `limit` bytes."""
    return WireError(431, f"Request header too large. Must be at most {limit} bytes.")


def request_timeout(seconds: float) -> WireError:
    """408: a head or a body that did not arrive in time. The connection ends with it."""
    return WireError(408, f"Request not received within {seconds:g} seconds.", {"Connection": "close"})


# The body as bytes.


def body_too_large(limit: int) -> WireError:
    """413: more than `limit` bytes, before or after decompression."""
    return WireError(413, f"Request body too large. Must be at most {limit} bytes, also after decompression.")


def too_many_values(limit: int) -> WireError:
    """413: more than `limit` arrays, objects and entries."""
    return WireError(413, f"Request body too large. Must hold at most {limit} JSON values.")


def unsupported_encoding(name: str) -> WireError:
    """415 with the supported codings in `Accept-Encoding`, as RFC 9110 section 15.5.16 asks."""
    codings = "zstd, gzip, deflate, identity"
    return WireError(
        415, f"Unsupported Content-Encoding: {name}. Must be one of: {codings}.", {"Accept-Encoding": codings}
    )


def malformed_body(message: str) -> WireError:
    """400: a compressed stream or a multipart body that is broken."""
    return usage_error(message)


def missing_body() -> WireError:
    """422: nothing, or JSON `null`."""
    return validation([{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}])


def invalid_json(position: int, reason: str) -> WireError:
    """422: not JSON. `position` counts characters from the start of the text."""
    return validation(
        [
            {
                "type": "json_invalid",
                "loc": ["body", position],
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": reason},
            }
        ]
    )


def nesting_too_deep() -> WireError:
    return invalid_json(0, "nesting too deep")


def not_an_object(body: Any) -> WireError:
    """422: the body is something else than a JSON object, for instance a form."""
    message = "Input should be a valid dictionary or object to extract fields from"
    return validation([{"type": "model_attributes_type", "loc": ["body"], "msg": message, "input": body}])


# The body as a request.


def validation(entries: Sequence[ErrorEntry]) -> WireError:
    """422 with a list of validation entries."""
    return WireError(422, list(entries))


def usage_error(message: str) -> WireError:
    return _typed(400, "api_usage_error", message)


def invalid_request(message: str = "Invalid request.") -> WireError:
    """400: an unknown top-level field or an unknown question type."""
    return usage_error(message)


def assets_not_supported() -> WireError:
    return usage_error("Assets are not supported: this server reads text only, no images.")


def box_not_supported(question_id: str) -> WireError:
    return usage_error(f"Box questions are not supported: this server reads text only, no images: {question_id}")


def invalid_header(name: str, reason: str) -> WireError:
    return usage_error(f"Invalid header {name}: {reason}")


def unknown_model(name: str) -> WireError:
    return usage_error(f"Unknown model: {name}")


def empty_question_key() -> WireError:
    return WireError(400, "Question key cannot be empty.")


def no_choices(question_id: str) -> WireError:
    return WireError(400, f"Choice question must have at least one choice: {question_id}")


def too_many_choices() -> WireError:
    return WireError(400, f"Too many choices. Must have at most {MAX_CHOICES} choices.")


def too_many_levels() -> WireError:
    return WireError(400, f"Too many score levels. Must have at most {MAX_LEVELS} levels.")


def empty_noul(question_id: str) -> WireError:
    return WireError(400, f"Noul question must have criteria or instructions: {question_id}")


def max_tokens_exceeded() -> WireError:
    """400 without a message, as recorded."""
    return WireError(400, {"error_type": "max_tokens_exceeded"})


# What the server cannot do now.


def overloaded(retry_after_s: int) -> WireError:
    """529 with `Retry-After` in whole seconds."""
    message = "The server is overloaded. Please retry later."
    return _typed(529, "overloaded", message, {"Retry-After": str(max(0, retry_after_s))})


def stopping(retry_after_s: int) -> WireError:
    """503 with `Retry-After`: the server ends before this request could be answered, or has arrived."""
    message = "The server is stopping. Please retry later."
    headers = {"Retry-After": str(max(0, retry_after_s)), "Connection": "close"}
    return _typed(503, "stopping", message, headers)


def not_ready() -> WireError:
    return _typed(503, "not_ready", "The server is not ready yet.")


def internal_error() -> WireError:
    """500: ours, never the request's fault."""
    return _typed(500, "internal_error", "The server failed to answer this request.")
