"""CORS whose refusals look like every other error."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from openjev_server.http.responses import json_response

__all__ = ["CorsMiddleware"]


class CorsMiddleware(CORSMiddleware):
    """Refuses a preflight with a `detail`."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Starlette's, with its text as JSON where it refuses."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
        return json_response({"detail": bytes(response.body).decode()}, status=response.status_code, headers=headers)
