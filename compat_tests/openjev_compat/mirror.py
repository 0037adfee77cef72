"""The shadow's other half: decode what went by, ask our engine the same, append both answers."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from openjev_sdk import AsyncClient
from openjev_server.wire.body import decode_body
from openjev_server.wire.errors import WireError

from .fixture import Fixture, Request, Usage
from .store import checked, cut_unfinished_line

__all__ = ["Exchange", "Mirror", "PairFiles"]

_LOG = logging.getLogger("openjev.shadow")
_MAX_DEPTH = 200


@dataclass(frozen=True, slots=True)
class Exchange:
    """One answered request as it went over the wire, without its headers: no key is kept."""

    path: str
    content_type: str | None
    content_encoding: str | None
    request: bytes
    response_encoding: str | None
    response: bytes
    elapsed_ms: float


@dataclass(frozen=True, slots=True)
class PairFiles:
    """`upstream.jsonl` and `engine.jsonl` in one directory: the two sides of `agree`."""

    directory: Path
    licence: str = "private: recorded from live traffic"

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.directory / "upstream.jsonl", self.directory / "engine.jsonl"

    def repair(self) -> None:
        """Drop what a killed run left of its last lines. Call it before the first `append`."""
        for path in self.paths:
            if path.is_file():
                cut_unfinished_line(path)

    def append(self, upstream: list[Fixture], engine: list[Fixture]) -> None:
        """Raises FixtureError, and writes nothing, when one of them could not be read again."""
        for fixture in (*upstream, *engine):
            checked(fixture)
        self.directory.mkdir(parents=True, exist_ok=True)
        for path, fixtures in zip(self.paths, (upstream, engine), strict=True):
            with path.open("a", encoding="utf-8") as lines:
                lines.write("".join(fixture.to_line() + "\n" for fixture in fixtures))


class Mirror:
    """A bounded queue of exchanges and the task that works through it, one at a time."""

    def __init__(self, engine: AsyncClient, pairs: PairFiles, *, queued: int, max_body_bytes: int) -> None:
        self._engine = engine
        self._pairs = pairs
        self._max_body_bytes = max_body_bytes
        self._queue: asyncio.Queue[Exchange] = asyncio.Queue(queued)
        self.mirrored = 0
        self.dropped = 0
        self.failed = 0

    def offer(self, exchange: Exchange) -> None:
        """Take it if there is room; never waits, never raises."""
        try:
            self._queue.put_nowait(exchange)
        except asyncio.QueueFull:
            self.dropped += 1

    async def run(self) -> None:
        """Work until cancelled. What goes wrong with one exchange is counted and logged, and ends there."""
        while True:
            exchange = await self._queue.get()
            try:
                await self._ask(exchange)
                self.mirrored += 1
            except Exception as error:
                self.failed += 1
                _LOG.warning("not mirrored: %s: %s", type(error).__name__, error)
            finally:
                self._queue.task_done()

    async def drain(self, *, timeout_s: float) -> None:
        """Wait for what is queued, at most `timeout_s`."""
        try:
            await asyncio.wait_for(self._queue.join(), timeout_s)
        except TimeoutError:
            _LOG.warning("stopped with %d exchanges not mirrored", self._queue.qsize())

    async def _ask(self, exchange: Exchange) -> None:
        body, theirs = await asyncio.to_thread(self._decode, exchange)
        started = time.perf_counter()
        decision = await self._engine.decide(body["state"], body["questions"])
        elapsed_ms = (time.perf_counter() - started) * 1000
        case = f"shadow/{uuid.uuid4().hex}"
        upstream = self._fixtures(case, body, theirs, "shadow upstream", exchange.elapsed_ms)
        engine = self._fixtures(case, body, decision.raw, "shadow engine", elapsed_ms)
        await asyncio.to_thread(self._pairs.append, upstream, engine)

    def _decode(self, exchange: Exchange) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        try:
            body = decode_body(
                exchange.request,
                content_encoding=exchange.content_encoding,
                content_type=exchange.content_type,
                limit=self._max_body_bytes,
                max_depth=_MAX_DEPTH,
            )
        except WireError as error:
            raise ValueError(f"the request cannot be read: {error.detail}") from None
        headers = {"content-encoding": exchange.response_encoding} if exchange.response_encoding else {}
        answer = json.loads(httpx.Response(200, headers=headers, content=exchange.response).content)
        if not isinstance(body, dict) or not isinstance(answer, dict) or "answers" not in answer:
            raise ValueError(f"{exchange.path} is no answered decision")
        return body, answer

    def _fixtures(
        self, case: str, body: Mapping[str, Any], answer: Mapping[str, Any], source: str, elapsed_ms: float
    ) -> list[Fixture]:
        return [
            Fixture(
                id=f"{case}/{qid}",
                source=source,
                licence=self._pairs.licence,
                workflow="shadow",
                case=case,
                model=str(answer.get("model") or "unknown"),
                recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
                type=given["type"],
                request=Request(body["state"], body["questions"][qid]),
                answer=given,
                reference=None,
                latency_ms=round(elapsed_ms, 3),
                usage=Usage.of(answer.get("usage"), questions=len(body["questions"])),
            )
            for qid, given in answer["answers"].items()
            if qid in body["questions"]
        ]
