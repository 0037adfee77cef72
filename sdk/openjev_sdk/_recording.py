"""Transports that keep a record of every decision a client makes, one line per answer."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import httpx

from openjev_sdk._constants import SYSTEM_ONE_PATH

__all__ = ["AsyncRecordingTransport", "RecordingTransport"]

_LOG = logging.getLogger(__name__)
_ANSWERS = {"noul", "choice", "score"}


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
        started = time.perf_counter()
        response = self._inner.handle_request(request)
        if _is_decision(request, response):
            sent = request.read()
            response.read()
            self._record.write(request.url, sent, response.content, (time.perf_counter() - started) * 1000)
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
        started = time.perf_counter()
        response = await self._inner.handle_async_request(request)
        if _is_decision(request, response):
            sent = await request.aread()
            await response.aread()
            self._record.write(request.url, sent, response.content, (time.perf_counter() - started) * 1000)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


def _is_decision(request: httpx.Request, response: httpx.Response) -> bool:
    return request.method == "POST" and request.url.path.endswith(SYSTEM_ONE_PATH) and response.status_code == 200


@dataclass(frozen=True, slots=True)
class _Record:
    path: Path
    workflow: str
    licence: str

    def write(self, url: httpx.URL, sent: bytes, received: bytes, elapsed_ms: float) -> None:
        try:
            lines = self._lines(url, json.loads(sent), json.loads(received), elapsed_ms)
            # One write per exchange keeps the lines of threads and processes apart.
            with _LOCK, self.path.open("a", encoding="utf-8") as file:
                file.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            _LOG.warning("the exchange was not recorded: %s: %s", type(error).__name__, error)

    def _lines(
        self, url: httpx.URL, sent: Mapping[str, Any], received: Mapping[str, Any], elapsed_ms: float
    ) -> list[dict[str, Any]]:
        questions = sent["questions"]
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
        if all(isinstance(count, int) for count in tokens.values()):
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
            if name in questions and answer.get("type") in _ANSWERS
        ]


_LOCK = threading.Lock()
