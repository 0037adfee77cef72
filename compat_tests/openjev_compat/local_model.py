"""A checkpoint in this process, asked node by node, with every answer kept as a fixture."""

from __future__ import annotations

import gc
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from openjev_server.bundle import ModelNotFound, load_bundle, model_id, resolve_adapter, resolve_model
from openjev_server.canvas import (
    SEED,
    CanvasTooWide,
    CompiledRequest,
    Compiler,
    Control,
    Layout,
    Template,
    read_greedily,
    read_out,
)
from openjev_server.canvas.prompt import PromptError
from openjev_server.canvas.templates import canonical_id
from openjev_server.engine.protocol import Engine, EngineError, EngineResult
from openjev_server.questions import Choice, Noul, Question
from openjev_server.settings import Settings
from openjev_server.wire.answer import render_answer
from openjev_server.wire.errors import WireError
from openjev_server.wire.parse import parse_request

from .asking import Ask
from .fixture import Fixture, Request, Usage
from .journal import Journal
from .store import FixtureError

__all__ = ["LocalModel", "Run", "Setup", "seed_template"]

DECIMALS = 6
TURN = "<|turn>"


@dataclass(frozen=True, slots=True)
class Setup:
    """One way of asking."""

    name: str
    template: Template
    layout: Layout
    steps: int
    replicas: int = 1
    noise: str = ""
    """What the slots' noise is drawn for; empty: the template."""


@dataclass(frozen=True, slots=True)
class Run:
    """The answers, what failed (one line each), and seconds in the engine, over all sessions that wrote the journal."""

    fixtures: tuple[Fixture, ...]
    failures: tuple[str, ...]
    failed_questions: int
    seconds: float


class LocalModel:
    """Loaded as `settings` say, on first use: a finished journal needs no model. `progress` is called with every
    tensor's name.

    Raises FixtureError, in one sentence, for a model that cannot be found or loaded.
    """

    def __init__(self, settings: Settings, progress: Callable[[str], None] | None = None) -> None:
        self._settings = settings
        self._progress = progress
        self._engine: Engine | None = None
        self._hash: str | None = None
        self.load_seconds = 0.0
        try:
            self.directory = resolve_model(settings.model, revision=settings.model_revision)
            self._adapter = resolve_adapter(settings.adapter)
            self.tokenizer = load_bundle(self.directory).tokenizer
        except ModelNotFound as error:
            raise FixtureError(str(error)) from None
        self.id = model_id(self.directory)

    @property
    def weights_hash(self) -> str:
        from openjev_server.engine.loading import weights_hash

        if self._hash is None:
            try:
                self._hash = weights_hash(self.directory, adapter=self._adapter)
            except OSError as error:
                raise FixtureError(str(error)) from None
        return self._hash

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            started = time.perf_counter()
            self._engine = self._loaded()
            self._engine.warm_up()
            self.load_seconds = time.perf_counter() - started
        return self._engine

    def template(self, name: str) -> Template:
        """The template of this id or file, in the checkpoint's turns. Raises FixtureError."""
        try:
            return load_bundle(self.directory, template=name).template
        except ModelNotFound as error:
            raise FixtureError(str(error)) from None

    def fits(self, template: Template) -> bool:
        """Whether the tokenizer has the control tokens that the template places."""
        return all(self.tokenizer.has(token) for token in template.controls)

    def source(self, setup: Setup) -> str:
        """What answers are marked with, also to resume only the same."""
        settings = self._settings
        how = f"{setup.template.id}/{setup.template.hash}, {setup.layout}, {setup.steps} steps"
        how += f", noise of {setup.noise}" if setup.noise else ""
        how += f", {setup.replicas} replicas, {settings.dtype}, weights {settings.weights}"
        return f"{self.id}@{self.weights_hash}, {how}"

    def run(self, setup: Setup, asks: Sequence[Ask], journal: Journal, done: Callable[[], None]) -> Run:
        """Asks what the journal does not hold; `done` is called after each node. What fails is listed."""
        source = self.source(setup)
        fixtures, numbers = journal.resume(source, [_digested(ask) for ask in asks])
        missing = [asks[number] for number in numbers]
        for _ in range(len(asks) - len(missing)):
            done()
        failures: list[str] = []
        for batch in self._batches(setup, missing, failures):
            for answered in self._answered(batch, source, setup, failures):
                journal.append(answered)
                fixtures += answered
                done()
        known = {fixture.id: fixture for fixture in fixtures}
        wanted = [id_ for ask in asks for id_ in ask.questions]
        answers = tuple(known[id_] for id_ in wanted if id_ in known)
        seconds = {(f.case, f.node): (f.latency_ms or 0.0) / 1000 for f in answers}
        return Run(answers, tuple(failures), len(wanted) - len(answers), sum(seconds.values()))

    def close(self) -> None:
        """Lets the weights go, and their memory with them."""
        if self._engine is None:
            return
        import torch

        self._engine.close()
        self._engine = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _loaded(self) -> Engine:
        from openjev_server.checkpoint import CannotLoad, load_checkpoint

        try:
            return load_checkpoint(self.directory, self._settings, self._progress)
        except CannotLoad as error:
            raise FixtureError(str(error)) from None
        except RuntimeError as error:  # a device that is not there, or has too little memory
            raise FixtureError(f"cannot load {self._settings.model}: {error}") from None

    def _batches(self, setup: Setup, asks: Sequence[Ask], failures: list[str]) -> Iterator[list[_Compiled]]:
        """Compiled nodes, as many at a time as make a pass full."""
        compiler = Compiler(self.tokenizer, setup.template, noise=setup.noise)
        batch: list[_Compiled] = []
        tokens = 0
        for ask in asks:
            try:
                questions = _questions(ask)
                compiled = compiler.compile(
                    ask.state, questions, layout=setup.layout, steps=setup.steps, replicas=setup.replicas
                )
            except (WireError, CanvasTooWide, PromptError) as error:
                failures.append(f"{ask.case}, {ask.node}: {error}")
                continue
            if batch and tokens + compiled.request.tokens > self._settings.token_budget:
                yield batch
                batch, tokens = [], 0
            batch.append(_Compiled(ask, questions, compiled))
            tokens += compiled.request.tokens
        if batch:
            yield batch

    def _answered(
        self, batch: list[_Compiled], source: str, setup: Setup, failures: list[str]
    ) -> Iterator[list[Fixture]]:
        """Per node its answers; none for one that failed."""
        engine = self.engine
        started = time.perf_counter()
        results = engine.run([item.compiled.request for item in batch])
        seconds = time.perf_counter() - started
        tokens = sum(item.compiled.request.tokens for item in batch)
        for item, result in zip(batch, results, strict=True):
            try:
                if not isinstance(result, EngineResult):
                    raise result
                share_ms = 1000 * seconds * item.compiled.request.tokens / tokens
                yield _fixtures(item, result, source, setup, self.id, share_ms)
            except EngineError as error:
                failures.append(f"{item.ask.case}, {item.ask.node}: {error}")
                yield []


def seed_template(model: LocalModel, name: str) -> Template:
    """The seed's template, or the owner's wording of it; without turns where the tokenizer has none (a dry run).

    Raises FixtureError.
    """
    if canonical_id(name) != SEED.id or model.tokenizer.has(TURN):
        return model.template(name)
    bare = replace(SEED, turn_open=(Control("<bos>"),), turn_close=())
    if not model.fits(bare):
        raise FixtureError(f"{model.id}: the tokenizer has neither turns nor <bos> and <eos>")
    return bare


@dataclass(frozen=True, slots=True)
class _Compiled:
    ask: Ask
    questions: tuple[Question, ...]
    compiled: CompiledRequest


def _digested(ask: Ask) -> Ask:
    return replace(ask, state=_digest(ask.state))


def _digest(state: Any) -> str:
    """Stands for the state in a journal: documents are long, and each is asked many questions in many ways."""
    return "sha256:" + hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _questions(ask: Ask) -> tuple[Question, ...]:
    """Typed, and called as the case files call them: the ids without what places them. Raises WireError."""
    prefix = f"public-evals/{ask.case}/{ask.node}/"
    short = [id_.removeprefix(prefix) if id_.startswith(prefix) else id_.rpartition("/")[2] for id_ in ask.questions]
    names = short if len(set(short)) == len(short) else list(ask.questions)
    body = {
        "model": "jev-latest",
        "state": ask.state,
        "questions": dict(zip(names, ask.questions.values(), strict=True)),
    }
    return parse_request(body, unknown_fields="reject").questions


def _fixtures(
    item: _Compiled, result: EngineResult, source: str, setup: Setup, model: str, milliseconds: float
) -> list[Fixture]:
    ask = item.ask
    usage = Usage(item.compiled.usage.input_tokens, item.compiled.usage.output_tokens, len(ask.questions))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    probabilities = read_out(item.compiled, result)
    walked = read_greedily(item.compiled, result)
    rows = zip(ask.questions.items(), item.questions, probabilities, walked, strict=True)
    return [
        Fixture(
            id=id_,
            source=source,
            licence=ask.licence,
            workflow=ask.workflow,
            case=ask.case,
            node=ask.node,
            model=model,
            recorded_at=now,
            type=wire["type"],
            request=Request(_digest(ask.state), wire),
            answer={
                **render_answer(question, shares.tolist(), decimals=DECIMALS),
                "greedy": _labels(question)[greedy],
            },
            reference=None,
            steps=setup.steps,
            latency_ms=round(milliseconds, 3),
            usage=usage,
        )
        for (id_, wire), question, shares, greedy in rows
    ]


def _labels(question: Question) -> tuple[str, ...]:
    match question:
        case Noul():
            return ("true", "false")
        case Choice(options=options):
            return tuple(option.name for option in options)
        case _:
            return tuple(str(level) for level in range(len(question.levels)))
