"""Answers in this process: the checkpoint is loaded, asked once, and let go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from openjev_server.admission import Admission
from openjev_server.bundle import load_bundle, resolve_model
from openjev_server.checkpoint import load_checkpoint
from openjev_server.cli.table import Answered
from openjev_server.decide import Decision, decider_for
from openjev_server.settings import Settings
from openjev_server.wire.overrides import Overrides
from openjev_server.wire.parse import parse_request

__all__ = ["ask_here"]


def ask_here(
    settings: Settings, state: Any, questions: dict[str, Any], progress: Callable[[str], None] | None
) -> Answered:
    """Answers one request with the model, device and switches of `settings`.

    Raises:
        WireError: a request that a server would refuse.
        ModelNotFound, CannotLoad, CalibrationError: no such model, or not a usable one.
        EngineError: the model could not evaluate the request.
    """
    directory = resolve_model(settings.model, revision=settings.model_revision)
    bundle = load_bundle(directory, template=settings.template)
    request = parse_request(
        {"model": bundle.id, "state": state, "questions": questions}, unknown_fields=settings.unknown_fields
    )
    engine = load_checkpoint(directory, settings, progress)
    switches = Overrides(
        layout=settings.layout, steps=settings.steps, replicas=settings.replicas, decimals=settings.decimals
    )

    async def decide() -> Decision:
        admission = Admission(engine, max_queued=1, token_budget=settings.token_budget)
        decider = decider_for(bundle, admission, engine.info, settings)
        try:
            return await decider.decide(request, switches)
        finally:
            await admission.drain(0)

    started = time.perf_counter()
    decision = asyncio.run(decide())
    return Answered(decision.body, decision.fingerprint, (time.perf_counter() - started) * 1000)
