"""The ASGI application: routes and lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from openjev_server.admission import Admission
from openjev_server.bundle import ModelBundle, load_bundle, resolve_model
from openjev_server.decide import decider_for
from openjev_server.dispatch import Dispatcher
from openjev_server.engine.protocol import Engine, EngineInfo
from openjev_server.http.authentication import AuthenticationMiddleware
from openjev_server.http.constants import EXPOSED_HEADERS, GZIP_LEVEL
from openjev_server.http.cors import CorsMiddleware
from openjev_server.http.disconnect import ClientDisconnected, disconnected
from openjev_server.http.fallback import FallbackMiddleware
from openjev_server.http.paths import CourtesyPathMiddleware
from openjev_server.http.request_id import RequestIdMiddleware
from openjev_server.http.responses import error_response, http_error, json_response, wire_error
from openjev_server.http.system_one import SystemOne
from openjev_server.http.timing import ServerTimingMiddleware
from openjev_server.settings import Settings
from openjev_server.wire.errors import WireError, not_ready
from openjev_server.wire.openapi import openapi

__all__ = ["app_around", "create_app"]


class ExactRoute(Route):
    """A route that allows exactly its method: GET does not bring HEAD, as in the original."""

    def __init__(self, path: str, endpoint: Callable[..., Any], *, method: str) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.methods = {method}


def create_app(engine: Engine, settings: Settings, bundle: ModelBundle | None = None) -> Starlette:
    """The application around one loaded engine, which it warms up in the background and closes at the end.

    Args:
        engine: evaluates requests; called from one thread of its own.
        settings: limits and switches.
        bundle: tokenizer and template of the engine's checkpoint; None reads them from `settings.model`.
    """
    if bundle is None:
        directory = resolve_model(settings.model, revision=settings.model_revision)
        bundle = load_bundle(directory, template=settings.template)
    admission = Admission(engine, max_queued=settings.max_queued_requests, token_budget=settings.token_budget)
    return app_around(admission, engine.info, settings, bundle)


def app_around(admission: Dispatcher, info: EngineInfo, settings: Settings, bundle: ModelBundle) -> Starlette:
    """The application in front of whatever evaluates compiled requests; it starts that, and drains it at the end.

    Args:
        admission: becomes `app.state.admission`. At the end of the lifespan it is given `app.state.drain_timeout_s`,
            and `app.state.drained` says whether that was enough.
        info: of the engine or engines behind it.
        settings: limits and switches.
        bundle: tokenizer and template of their checkpoint.
    """
    decider = decider_for(bundle, admission, info, settings)
    listing, description = decider.catalog.listing(decider.calibrations.listing()), openapi()

    async def models(_request: Request) -> Response:
        return json_response(listing)

    async def openapi_json(_request: Request) -> Response:
        return json_response(description)

    async def health(_request: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(_request: Request) -> Response:
        return json_response({"status": "ready"}) if admission.ready else error_response(not_ready())

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        admission.start()
        try:
            yield
        finally:
            app.state.drained = await admission.drain(app.state.drain_timeout_s)

    app = Starlette(
        routes=[
            ExactRoute("/v1/systemone", SystemOne(decider, settings).respond, method="POST"),
            ExactRoute("/v1/models", models, method="GET"),
            ExactRoute("/openapi.json", openapi_json, method="GET"),
            Route("/health", health),
            Route("/ready", ready),
        ],
        middleware=_middleware(settings),
        exception_handlers={WireError: wire_error, HTTPException: http_error, ClientDisconnected: disconnected},
        lifespan=lifespan,
    )
    app.state.admission = admission
    app.state.drain_timeout_s = settings.drain_timeout_s
    app.state.drained = True
    return app


def _middleware(settings: Settings) -> list[Middleware]:
    """From the outside in: what concerns every response first, what may refuse a request last."""
    cors = Middleware(
        CorsMiddleware,
        allow_origins=settings.cors_origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=EXPOSED_HEADERS,
    )
    authentication = Middleware(AuthenticationMiddleware, keys=settings.api_keys)
    return [
        Middleware(RequestIdMiddleware),
        Middleware(ServerTimingMiddleware),
        *([cors] if settings.cors_origins else []),
        Middleware(FallbackMiddleware, retry_after_s=settings.retry_after_s),
        Middleware(GZipMiddleware, minimum_size=settings.gzip_minimum_bytes, compresslevel=GZIP_LEVEL),
        Middleware(CourtesyPathMiddleware),
        *([authentication] if settings.api_keys else []),
    ]
