"""Transports and clocks for tests without a socket."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from openjev_sdk import Clock

REQUEST_ID = "req_01a0d378b24474e89a9636d4639da734"
GOOD = {
    "model": "openjev-nano-1",
    "answers": {"q": {"type": "noul", "noul": 0.75}},
    "usage": {"input_tokens": 12, "output_tokens": 34},
}

Reply = httpx.Response | Callable[[], httpx.Response] | Exception | dict[str, Any]
"""A response serves once; what makes one serves as often as asked."""


@dataclass
class Script:
    """A handler for `httpx.MockTransport` that gives one reply after the other; the last one repeats."""

    replies: list[Reply]
    requests: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(request)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, dict):
            return httpx.Response(200, json=reply, headers={"x-typesafe-request-id": REQUEST_ID})
        return reply if isinstance(reply, httpx.Response) else reply()

    def body(self, index: int = -1) -> Any:
        return json.loads(self.requests[index].content)


@dataclass
class FakeTime:
    """Time that passes only while sleeping, and by `tick` per look at the clock."""

    tick: float = 0.0
    chance: float = 0.0
    elapsed: float = 0.0
    slept: list[float] = field(default_factory=list)

    def clock(self, now: float = 1_700_000_000.0) -> Clock:
        async def sleep_async(seconds: float) -> None:
            self.sleep(seconds)

        return Clock(self.monotonic, lambda: now, self.sleep, sleep_async, lambda: self.chance)

    def monotonic(self) -> float:
        self.elapsed += self.tick
        return self.elapsed

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.elapsed += seconds


def answer_first(request: httpx.Request) -> httpx.Response:
    """Answer every question: yes, the first option, the last level."""
    questions = json.loads(request.content)["questions"]
    answers = {name: _first(question) for name, question in questions.items()}
    return httpx.Response(200, json={**GOOD, "answers": answers})


def _first(question: dict[str, Any]) -> dict[str, Any]:
    criteria: Any = question.get("criteria")
    match question["type"]:
        case "noul":
            return {"type": "noul", "noul": 0.9}
        case "choice":
            chances = {name: float(i == 0) for i, name in enumerate(criteria)}
            return {"type": "choice", "choice": next(iter(criteria)), "confidence": 1.0, "probabilities": chances}
        case _:
            last = len(criteria) - 1
            chances = {str(i): float(i == last) for i in range(len(criteria))}
            legend = {str(i): level for i, level in enumerate(criteria)}
            score = {"type": "score", "score": float(last), "confidence": 1.0}
            return {**score, "legend": legend, "probabilities": chances}


Handler = Callable[[httpx.Request], httpx.Response]
