"""Answers from a server, through the SDK."""

from __future__ import annotations

import time
from typing import Any, Literal

from openjev_sdk import Client, Options

from openjev_server.cli.table import Answered

__all__ = ["ask_server"]


def ask_server(
    url: str,
    state: Any,
    questions: dict[str, Any],
    *,
    api_key: str | None,
    model: str | None,
    timeout_s: float,
    layout: Literal["isolated", "grouped"] | None,
    steps: int | None,
    replicas: int | None,
    decimals: int | None,
) -> Answered:
    """Answers one request; None leaves a switch to the server. Raises openjev_sdk.OpenJevError."""
    options = Options(layout=layout, steps=steps, replicas=replicas, decimals=decimals)
    with Client(url, api_key, timeout=timeout_s) as client:
        started = time.perf_counter()
        decision = client.decide(state, questions, model=model, options=options)
        return Answered(decision.raw, decision.fingerprint, (time.perf_counter() - started) * 1000)
