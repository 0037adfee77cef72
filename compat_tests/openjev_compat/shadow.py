"""A proxy that serves an upstream's answers unchanged and asks our engine a sample of the same questions.

The client waits for the upstream only: the mirror has its own bounded queue and task, and drops what does not fit.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache

import httpx
from openjev_sdk import AsyncClient
from openjev_sdk._config import checked_url
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .mirror import Exchange, Mirror, PairFiles

__all__ = ["ShadowSettings", "create_shadow_app"]

_LOG = logging.getLogger("openjev.shadow")
_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# RFC 9110 7.6.1: these describe one connection, not the message.
_CONNECTION = "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer upgrade"
_HOP_BY_HOP = frozenset(name.encode() for name in [*_CONNECTION.split(), "transfer-encoding"])


@dataclass(frozen=True, slots=True)
class ShadowSettings:
    """`sample`: the share of answered requests to mirror. `queued`: how many may wait for the engine.

    Raises UsageError for an upstream that is no root URL of a host.
    """

    upstream: str
    sample: float = 0.1
    queued: int = 256
    timeout_s: float = 60.0
    max_body_bytes: int = 32 * 1024 * 1024
    seed: int | None = None

    def __post_init__(self) -> None:
        checked_url(self.upstream, name="--upstream")


def create_shadow_app(
    settings: ShadowSettings,
    engine: AsyncClient,
    pairs: PairFiles,
    *,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Starlette:
    """The proxy. `engine` answers the mirrored questions and is closed with it; `transport` reaches the upstream."""
    # A transport and no client: a proxy keeps no cookies, follows no redirect and adds no header, and it is faster.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30)
    http = httpx.AsyncHTTPTransport(limits=limits, trust_env=False) if transport is None else transport
    mirror = Mirror(engine, pairs, queued=settings.queued, max_body_bytes=settings.max_body_bytes)
    proxy = _Proxy(settings, http, mirror)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        pairs.repair()
        task = asyncio.create_task(mirror.run())
        try:
            yield
        finally:
            await mirror.drain(timeout_s=settings.timeout_s)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            _LOG.info("mirrored %d, dropped %d, failed %d", mirror.mirrored, mirror.dropped, mirror.failed)
            await http.aclose()
            await engine.aclose()

    app = Starlette(routes=[Route("/{path:path}", proxy.answer, methods=_METHODS)], lifespan=lifespan)
    app.state.mirror = mirror
    return app


class _Proxy:
    def __init__(self, settings: ShadowSettings, http: httpx.AsyncBaseTransport, mirror: Mirror) -> None:
        self._settings = settings
        self._upstream = httpx.URL(settings.upstream)
        self._http = http
        self._mirror = mirror
        self._url = lru_cache(maxsize=256)(self._joined)  # parsing takes a tenth of a request's time
        self._timeout = httpx.Timeout(settings.timeout_s).as_dict()
        self._random = random.Random(settings.seed)

    async def answer(self, request: Request) -> Response:
        content = bytearray()
        try:
            async for chunk in request.stream():
                content += chunk
                if len(content) > self._settings.max_body_bytes:
                    detail = f"Body over {self._settings.max_body_bytes} bytes."
                    return JSONResponse({"detail": detail}, status_code=413)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        body = bytes(content)
        started = time.perf_counter()
        try:
            upstream = await self._http.handle_async_request(self._forwarded(request, body))
            assert isinstance(upstream.stream, httpx.AsyncByteStream)
            try:
                received = b"".join([chunk async for chunk in upstream.stream])
            finally:
                await upstream.stream.aclose()
        except httpx.TimeoutException:
            return JSONResponse({"detail": "The upstream did not answer in time."}, status_code=504)
        except httpx.TransportError as error:
            return JSONResponse({"detail": f"The upstream cannot be reached: {error}"}, status_code=502)
        if _is_decision(request, upstream) and self._random.random() < self._settings.sample:
            elapsed_ms = (time.perf_counter() - started) * 1000
            self._mirror.offer(
                Exchange(
                    path=request.url.path,
                    content_type=request.headers.get("content-type"),
                    content_encoding=request.headers.get("content-encoding"),
                    request=body,
                    response_encoding=upstream.headers.get("content-encoding"),
                    response=received,
                    elapsed_ms=elapsed_ms,
                )
            )
        return _unchanged(request.method, upstream, received)

    def _joined(self, path: bytes, query: bytes) -> tuple[httpx.URL, bytes]:
        """The upstream's address, and the target as the client wrote it: the address has `..` and `.` resolved."""
        target = self._upstream.raw_path.rstrip(b"/") + path + (b"?" + query if query else b"")
        return self._upstream.copy_with(raw_path=target), target

    def _forwarded(self, request: Request, body: bytes) -> httpx.Request:
        url, target = self._url(request.scope["raw_path"], request.scope["query_string"])
        skipped = {b"host", b"content-length", b"expect"}
        headers = [(name, value) for name, value in _end_to_end(request.headers.raw) if name not in skipped]
        carries_body = body or request.method in {"POST", "PUT", "PATCH"}
        return httpx.Request(
            request.method,
            url,
            headers=headers,
            content=body if carries_body else None,
            extensions={"timeout": self._timeout, "target": target},
        )


def _end_to_end(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers, their names in lower case, without those of the connection and those that `connection` lists."""
    lowered = [(name.lower(), value) for name, value in headers]
    listed = {part.strip().lower() for name, value in lowered if name == b"connection" for part in value.split(b",")}
    return [(name, value) for name, value in lowered if name not in _HOP_BY_HOP and name not in listed]


def _is_decision(request: Request, upstream: httpx.Response) -> bool:
    return request.method == "POST" and upstream.status_code == 200 and request.url.path.endswith("/systemone")


def _unchanged(method: str, upstream: httpx.Response, received: bytes) -> Response:
    """The upstream's status, headers and bytes; only the headers of its connection are left out."""
    response = Response(status_code=upstream.status_code)
    response.body = received
    headers = _end_to_end(upstream.headers.raw)
    bodiless = method == "HEAD" or upstream.status_code in {204, 304}
    if upstream.status_code == 304:  # its length is that of the unsent body, for which the server would wait
        headers = [(name, value) for name, value in headers if name != b"content-length"]
    if not bodiless and not any(name == b"content-length" for name, _ in headers):
        headers.append((b"content-length", str(len(received)).encode()))  # it came in chunks
    response.raw_headers = headers
    return response
