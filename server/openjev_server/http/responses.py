"""Answers as compact JSON in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from openjev_server.wire.errors import WireError
from openjev_server.wire.json import to_json_bytes

__all__ = ["error_response", "http_error", "json_response", "wire_error"]


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with exactly `application/json` as its type."""
    return Response(to_json_bytes(value), status, headers=headers, media_type="application/json")


def error_response(error: WireError) -> Response:
    """The `{"detail": ...}` that every error is."""
    return json_response(error.body, status=error.status, headers=error.headers)


def wire_error(_request: Request, error: Exception) -> Response:
    """Exception handler: an error of the wire dialect."""
    assert isinstance(error, WireError)
    return error_response(error)


def http_error(_request: Request, error: Exception) -> Response:
    """Exception handler: starlette's own 404 and 405, whose phrases are the original's too."""
    assert isinstance(error, HTTPException)
    return json_response({"detail": error.detail}, status=error.status_code, headers=error.headers)
