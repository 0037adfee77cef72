"""`POST /v1/systemone`: bytes in, bytes out."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import Response

from openjev_server.decide import Decider, Decision, off_the_loop
from openjev_server.engine.protocol import EngineError
from openjev_server.http.body import read_body
from openjev_server.http.constants import CALIBRATION_HEADER, CLIENT, FINGERPRINT_HEADER, INLINE_BODY_BYTES
from openjev_server.http.disconnect import unless_disconnected
from openjev_server.http.responses import json_response
from openjev_server.http.timing import record_timing
from openjev_server.settings import Settings
from openjev_server.wire.body import decode_body
from openjev_server.wire.errors import internal_error
from openjev_server.wire.overrides import Overrides, parse_overrides
from openjev_server.wire.parse import parse_request
from openjev_server.wire.request import WireRequest

__all__ = ["SystemOne"]

logger = logging.getLogger(__name__)


class SystemOne:
    """The endpoint: reads, decodes and parses a body, has it decided, and answers."""

    def __init__(self, decider: Decider, settings: Settings) -> None:
        self._decider = decider
        self._settings = settings
        self._defaults = Overrides(
            layout=settings.layout, steps=settings.steps, replicas=settings.replicas, decimals=settings.decimals
        )

    async def respond(self, request: Request) -> Response:
        """Answers one request; its work is dropped as soon as the client leaves."""
        raw = await read_body(
            request.headers,
            request.receive,
            limit=self._settings.max_body_bytes,
            timeout_s=self._settings.receive_timeout_s,
        )
        decision = await unless_disconnected(request.receive, self._decide(request, raw))
        record_timing(request.scope, "queue", decision.queue_ms)
        record_timing(request.scope, "model", decision.model_ms)
        headers = {FINGERPRINT_HEADER: decision.fingerprint, CALIBRATION_HEADER: decision.calibration}
        return json_response(decision.body, headers=headers)

    async def _decide(self, request: Request, raw: bytes) -> Decision:
        large = len(raw) > INLINE_BODY_BYTES or "content-encoding" in request.headers
        parsed = await off_the_loop(lambda: self._parse(request, raw), large=large)
        overrides = parse_overrides(request.headers, self._defaults, allowed=self._settings.allow_overrides)
        try:
            client = request.scope.get("state", {}).get(CLIENT, "")
            return await self._decider.decide(parsed, overrides, large=large, client=client)
        except EngineError as error:
            # Whoever reads the log needs the cause; whoever asked can only try again.
            logger.exception("The engine failed on a request")
            raise internal_error() from error

    def _parse(self, request: Request, raw: bytes) -> WireRequest:
        body = decode_body(
            raw,
            content_encoding=request.headers.get("content-encoding"),
            content_type=request.headers.get("content-type"),
            limit=self._settings.max_body_bytes,
            max_depth=self._settings.max_json_depth,
            max_values=self._settings.max_json_values,
        )
        return parse_request(body, unknown_fields=self._settings.unknown_fields)
