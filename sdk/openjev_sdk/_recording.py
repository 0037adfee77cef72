"""Transports that keep a record of every decision a client makes, one line per answer."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import httpx

from openjev_sdk._constants import SYSTEM_ONE_PATH

__all__ = ["AsyncRecordingTransport", "RecordingTransport"]

_LOG = logging.getLogger(__name__)


class RecordingTransport(httpx.BaseTransport):
    """Appends what passes through to a JSONL file that `openjev agree` reads; requests and answers stay as they are.

    One line per question: its text, the answer, the model, tokens and milliseconds. Headers, and with them API keys,
    are never written. Only successful decisions are kept; a record that cannot be written is logged and lost.

    Args:
        path: The file to append to; its directory must exist.
        transport: Carries the requests; closed with this one. Unset: the network.
        workflow: The name under which `agree` finds these questions.
        licence: What may be done with the texts.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        transport: httpx.BaseTransport | None = None,
        *,
        workflow: str = "recorded",
        licence: str = "private",
    ) -> None:
        self._inner = httpx.HTTPTransport() if transport is None else transport
        self._record = _Record(Path(path), workflow, licence)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(self._record, request)
        if exchange.wanted and not isinstance(request.stream, httpx.ByteStream):
            assert isinstance(request.stream, httpx.SyncByteStream)
            request.stream = _Tee(request.stream, exchange.sent)
        response = self._inner.handle_request(request)
        if exchange.wanted and response.status_code == 200:
            if response.is_closed:
                exchange.write_decoded(response.content)
            else:
                assert isinstance(response.stream, httpx.SyncByteStream)
                write = partial(exchange.write, response.headers)
                response.stream = _Tee(response.stream, exchange.received, write)
        return response

    def close(self) -> None:
        self._inner.close()


class AsyncRecordingTransport(httpx.AsyncBaseTransport):
    """`RecordingTransport` for `AsyncClient`."""

    def __init__(
        self,
        path: str | PathLike[str],
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        workflow: str = "recorded",
        licence: str = "private",
    ) -> None:
        self._inner = httpx.AsyncHTTPTransport() if transport is None else transport
        self._record = _Record(Path(path), workflow, licence)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        exchange = _Exchange(self._record, request)
        if exchange.wanted and not isinstance(request.stream, httpx.ByteStream):
            assert isinstance(request.stream, httpx.AsyncByteStream)
            request.stream = _AsyncTee(request.stream, exchange.sent)
        response = await self._inner.handle_async_request(request)
        if exchange.wanted and response.status_code == 200:
            if response.is_closed:
                exchange.write_decoded(response.content)
            else:
                assert isinstance(response.stream, httpx.AsyncByteStream)
                write = partial(exchange.write, response.headers)
                response.stream = _AsyncTee(response.stream, exchange.received, write)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _nothing() -> None:
    """At the end of a request's body there is nothing to do."""


class _Tee(httpx.SyncByteStream):
    """The stream, with a copy of what was taken from it: whoever reads it reads it when and as without a record."""

    def __init__(self, stream: httpx.SyncByteStream, copy: bytearray, at_end: Callable[[], None] = _nothing) -> None:
        self._stream = stream
        self._copy = copy
        self._at_end = at_end

    def __iter__(self) -> Iterator[bytes]:
        self._copy.clear()
        for chunk in self._stream:
            self._copy += chunk
            yield chunk
        self._at_end()

    def close(self) -> None:
        self._stream.close()


class _AsyncTee(httpx.AsyncByteStream):
    """`_Tee` for asyncio."""

    def __init__(self, stream: httpx.AsyncByteStream, copy: bytearray, at_end: Callable[[], None] = _nothing) -> None:
        self._stream = stream
        self._copy = copy
        self._at_end = at_end

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._copy.clear()
        async for chunk in self._stream:
            self._copy += chunk
            yield chunk
        self._at_end()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Exchange:
    """A request on its way: what was sent and received of it so far, as it went over the wire."""

    def __init__(self, record: _Record, request: httpx.Request) -> None:
        self._record = record
        self._url = request.url
        self._started = time.perf_counter()
        self.wanted = request.method == "POST" and request.url.path.endswith(SYSTEM_ONE_PATH)
        known = self.wanted and isinstance(request.stream, httpx.ByteStream)
        self.sent = bytearray(request.content if known else b"")
        self.received = bytearray()

    def write(self, headers: httpx.Headers) -> None:
        try:
            content = httpx.Response(200, headers=headers, content=bytes(self.received)).content
        except httpx.DecodingError as error:
            _LOG.warning("the exchange was not recorded: %s", error)
        else:
            self.write_decoded(content)

    def write_decoded(self, content: bytes) -> None:
        elapsed_ms = (time.perf_counter() - self._started) * 1000
        self._record.write(self._url, bytes(self.sent), content, elapsed_ms)


@dataclass(frozen=True, slots=True)
class _Record:
    path: Path
    workflow: str
    licence: str

    def write(self, url: httpx.URL, sent: bytes, received: bytes, elapsed_ms: float) -> None:
        try:
            lines = self._lines(url, json.loads(sent), json.loads(received), elapsed_ms)
            text = "".join(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines).encode()
            # One unbuffered write per exchange keeps the lines of threads and processes apart.
            with _LOCK, self.path.open("ab", buffering=0) as file:
                file.write(text)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            _LOG.warning("the exchange was not recorded: %s: %s", type(error).__name__, error)

    def _lines(
        self, url: httpx.URL, sent: Mapping[str, Any], received: Mapping[str, Any], elapsed_ms: float
    ) -> list[dict[str, Any]]:
        questions = sent["questions"]
        if (
            not isinstance(sent["state"], str | dict | list)
            or not received["model"]
            or type(received["model"]) is not str
        ):
            raise ValueError("no decision")
        case = f"{self.workflow}/{uuid.uuid4().hex}"
        shared = {
            "source": f"recorded from {url.copy_with(username='', password='', path='/', query=None)}",
            "licence": self.licence,
            "workflow": self.workflow,
            "case": case,
            "model": received["model"],
            "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        usage = received.get("usage") or {}
        tokens = {name: usage.get(name) for name in ("input_tokens", "output_tokens")}
        extra: dict[str, Any] = {"latency_ms": round(elapsed_ms, 3)}
        if all(type(count) is int and count >= 0 for count in tokens.values()):
            extra["usage"] = {**tokens, "questions": len(questions)}
        return [
            {
                "id": f"{case}/{name}",
                **shared,
                "type": answer["type"],
                "request": {"state": sent["state"], "question": questions[name]},
                "answer": answer,
                "reference": None,
                **extra,
            }
            for name, answer in received["answers"].items()
            if name in questions and _is_usable(answer)
        ]


def _is_usable(answer: Mapping[str, Any]) -> bool:
    """Whether the values are such that `agree` reads the line: a bad one would make it refuse the file."""
    shares = [answer["confidence"]] if "confidence" in answer else []
    shares += answer.get("probabilities", {}).values()
    if not all(map(_is_share, shares)) or answer.get("probabilities") == {}:
        return False
    match answer.get("type"):
        case "noul":
            return _is_share(answer.get("noul"))
        case "choice":
            return isinstance(answer.get("choice"), str)
        case "score":
            score = answer.get("score")
            return isinstance(score, int | float) and not isinstance(score, bool) and score >= 0
    return False


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


_LOCK = threading.Lock()
