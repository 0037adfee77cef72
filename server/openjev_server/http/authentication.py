"""The key check, before a byte of the body is read."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from openjev_server.auth import ApiKey, bearer_token, key_of
from openjev_server.http.constants import API_PREFIX, CLIENT
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
            found = self._key(Headers(scope=scope).get("authorization"))
            if isinstance(found, WireError):
                await error_response(found)(scope, receive, send)
                return
            scope.setdefault("state", {})[CLIENT] = found.digest.hex()
        await self.app(scope, receive, send)

    def _key(self, authorization: str | None) -> ApiKey | WireError:
        token = bearer_token(authorization)
        if token is None:
            return missing_key()
        return key_of(token, self.keys) or wrong_key()
