"""Courtesy paths: what clients ask for when they were given a slightly different base URL."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from openjev_server.http.constants import API_PREFIX

__all__ = ["CourtesyPathMiddleware", "canonical_path"]


def canonical_path(path: str) -> str:
    """Drops one trailing slash and a doubled `/v1`; a redirect would lose the body of a POST."""
    doubled = API_PREFIX + API_PREFIX.lstrip("/")
    if path.startswith(doubled):
        path = API_PREFIX + path.removeprefix(doubled)
    return path[:-1] if len(path) > 1 and path.endswith("/") else path


class CourtesyPathMiddleware:
    """Serves a courtesy path as the path it stands for."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": canonical_path(scope["path"])}
        await self.app(scope, receive, send)
