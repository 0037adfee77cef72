"""Servers and transports that stand in for a System One host."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

ANSWERS: Mapping[str, dict[str, Any]] = {
    "noul": {"type": "noul", "noul": 0.75},
    "choice": {"type": "choice", "choice": "a", "confidence": 0.7, "probabilities": {"a": 0.8, "b": 0.1, "c": 0.1}},
    "score": {
        "type": "score",
        "score": 0.8,
        "confidence": 0.7,
        "legend": {"0": "none", "1": "some", "2": "all"},
        "probabilities": {"0": 0.2, "1": 0.8, "2": 0.0},
    },
}


def answer(request: httpx.Request) -> httpx.Response:
    """The same answer to every question of a type."""
    body = json.loads(request.content)
    answers = {name: ANSWERS[question["type"]] for name, question in body["questions"].items()}
    usage = {"input_tokens": 100, "output_tokens": 20 * len(answers)}
    return httpx.Response(200, json={"model": "stub-1", "answers": answers, "usage": usage})


def body(*types: str, state: Any = "a state") -> dict[str, Any]:
    """A request body with a question of each type, under the type's name."""
    criteria: dict[str, Any] = {"choice": {"a": None, "b": None, "c": None}, "score": ["none", "some", "all"]}
    questions = {
        name: {"type": name, "instructions": "?", **({"criteria": criteria[name]} if name in criteria else {})}
        for name in types
    }
    return {"state": state, "model": "jev-latest", "questions": questions}


@contextmanager
def served(app: ASGIApp) -> Iterator[str]:
    """The app on a real socket, in a thread; its root URL."""
    config = uvicorn.Config(
        app, port=0, log_level="warning", lifespan="on", ws="none", server_header=False, date_header=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def until(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    """Wait for it. Fails when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
