"""The uncalibrated answers that `calibrate` fits on: from a checkpoint in this process, or from a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from openjev_sdk import AsyncClient, ChoiceAnswer, NoulAnswer, Options, ScoreAnswer

from openjev_server.bundle import load_bundle, resolve_model
from openjev_server.calibration.data import DataError, Labelled
from openjev_server.calibration.kinds import answers_of
from openjev_server.calibration.protocol import UNCALIBRATED
from openjev_server.calibration.scalings import Float
from openjev_server.canvas.compile import CanvasTooWide, Compiler, Layout
from openjev_server.canvas.readout import read_out
from openjev_server.checkpoint import load_checkpoint
from openjev_server.engine.protocol import EngineError
from openjev_server.settings import Settings

__all__ = ["DECIMALS", "Answered", "ask_here", "ask_server"]

BATCH = 64
CONCURRENCY = 8
DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Answered:
    """Probabilities of every row in question order, and what gave them."""

    probabilities: Sequence[Float]
    model: str
    template: str
    template_hash: str
    weights_hash: str
    layout: str
    steps: int


def ask_here(
    settings: Settings,
    rows: Sequence[Labelled],
    loading: Callable[[str], None] | None,
    done: Callable[[int], None],
) -> Answered:
    """Asks the checkpoint of `settings`; `done` is called with how many rows were answered.

    Raises:
        ModelNotFound, CannotLoad: no such model, or not a usable one.
        DataError: a row is longer than the settings allow.
        EngineError: the model could not evaluate a row.
    """
    directory = resolve_model(settings.model, revision=settings.model_revision)
    bundle = load_bundle(directory, template=settings.template)
    engine = load_checkpoint(directory, settings, loading)
    try:
        compiler = Compiler(bundle.tokenizer, bundle.template)
        limits = settings.token_limits(engine.info.device)
        found: list[Float] = []
        for start in range(0, len(rows), BATCH):
            batch = rows[start : start + BATCH]
            compiled = []
            for number, row in enumerate(batch, start=start + 1):
                try:
                    one = compiler.compile(
                        row.request.state,
                        row.request.questions,
                        layout=Layout(settings.layout),
                        steps=settings.steps,
                        replicas=settings.replicas,
                    )
                except CanvasTooWide as error:
                    raise DataError(f"question {number} of the data: {error}") from error
                if one.request.tokens > limits.total or one.longest_prompt > limits.prompt:
                    raise DataError(f"question {number} of the data is longer than the server takes")
                compiled.append(one)
            for one, result in zip(compiled, engine.run([c.request for c in compiled]), strict=True):
                if isinstance(result, EngineError):
                    raise result
                found.append(read_out(one, result)[0])
            done(len(batch))
    finally:
        engine.close()
    template = bundle.template
    return Answered(
        found, bundle.id, template.id, template.hash, engine.info.weights_hash, settings.layout, settings.steps
    )


def ask_server(
    url: str,
    api_key: str | None,
    rows: Sequence[Labelled],
    *,
    model: str | None,
    layout: Any,
    steps: int | None,
    timeout_s: float,
    done: Callable[[int], None],
) -> Answered:
    """Asks a running OpenJev server for uncalibrated probabilities with six decimals.

    Raises:
        OpenJevError: it does not answer.
        DataError: it is no OpenJev server, or calibrates nevertheless.
    """
    options = Options(layout=layout, steps=steps, decimals=DECIMALS, calibration="off")

    async def ask_all() -> list[tuple[Float, str | None]]:
        gate = asyncio.Semaphore(CONCURRENCY)
        async with AsyncClient(url, api_key, timeout=timeout_s) as client:

            async def ask(row: Labelled) -> tuple[Float, str | None]:
                async with gate:
                    decision = await client.decide(row.request.state, {"q": row.question}, model=model, options=options)
                done(1)
                return _probabilities(row, decision["q"]), decision.fingerprint

            return list(await asyncio.gather(*(ask(row) for row in rows)))

    answered = asyncio.run(ask_all())
    marks = {mark for _, mark in answered}
    parts = (next(iter(marks)) or "").split("/")
    if len(marks) != 1 or len(parts) != 6 or parts[5] != UNCALIBRATED:
        raise DataError(f"{url} gives no uncalibrated answers of one OpenJev model")
    bound = _listing(url, api_key, timeout_s)
    name, _, weights = parts[0].partition("@")
    if bound.get("weights_hash") != weights or bound.get("template") != parts[1]:
        raise DataError(f"{url} does not say in /v1/models which weights and template answered")
    layout, steps = parts[2], int(parts[3].partition("x")[0])
    return Answered([p for p, _ in answered], name, parts[1], bound["template_hash"], weights, layout, steps)


def _listing(url: str, api_key: str | None, timeout_s: float) -> dict[str, Any]:
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key}"}
    try:
        found = httpx.get(f"{url.rstrip('/').removesuffix('/v1')}/v1/models", headers=headers, timeout=timeout_s).json()
    except (httpx.HTTPError, ValueError) as error:
        raise DataError(f"{url} does not list its models: {error}") from error
    listed = found.get("calibration") if isinstance(found, dict) else None
    return listed if isinstance(listed, dict) else {}


def _probabilities(row: Labelled, answer: object) -> Float:
    match answer:
        case NoulAnswer(probability=yes):
            return np.array([yes, 1 - yes])
        case ChoiceAnswer(probabilities=found) if found:
            return np.array([found[name] for name in answers_of(row.parsed)])
        case ScoreAnswer(probabilities=found) if found:
            return np.array([found[level] for level in range(len(row.target))])
    raise DataError("the server answered without probabilities")
