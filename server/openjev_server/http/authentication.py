"""The key check, before a byte of the body is read."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from openjev_server.auth import ApiKey, bearer_token, is_accepted
from openjev_server.http.constants import API_PREFIX
from openjev_server.http.responses import error_response
from openjev_server.wire.errors import WireError, missing_key, wrong_key

__all__ = ["AuthenticationMiddleware"]


class AuthenticationMiddleware:
    """Asks for a Bearer key on everything under /v1/: none 403, a wrong one 401, as the original does."""

    def __init__(self, app: ASGIApp, keys: Sequence[ApiKey]) -> None:
        self.app = app
        self.keys = tuple(keys)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(API_PREFIX):
            error = self._refusal(Headers(scope=scope).get("authorization"))
            if error is not None:
                await error_response(error)(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _refusal(self, authorization: str | None) -> WireError | None:
        token = bearer_token(authorization)
        if token is None:
            return missing_key()
        return None if is_accepted(token, self.keys) else wrong_key()
