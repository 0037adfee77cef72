"""Ask a running server, through the SDK, and keep every answer as a fixture."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from openjev_sdk import AsyncClient, Decision, OpenJevError, Options

from .asking import Ask
from .fixture import Fixture, Request, Usage
from .journal import Journal
from .store import FixtureError, checked

__all__ = ["LiveRun", "Target", "ask_all"]


@dataclass(frozen=True, slots=True)
class Target:
    """A server and how to ask it. `source` is what its answers are marked with, also to resume only its own."""

    url: str
    model: str | None = None
    options: Options | None = None
    concurrency: int = 4

    @property
    def source(self) -> str:
        switches = self.options.headers() if self.options is not None else {}
        parts = [f"model {self.model}" if self.model else "", *(f"{name} {value}" for name, value in switches.items())]
        return ", ".join([f"live {self.url}", *(part for part in parts if part)])


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The answers, what failed (one line each), and the seconds that asking took (None when nothing was asked)."""

    fixtures: tuple[Fixture, ...]
    failures: tuple[str, ...]
    failed_questions: int
    wall_s: float | None


class _Collector:
    def __init__(self, target: Target, journal: Journal, done: Callable[[], None]) -> None:
        self.target = target
        self.journal = journal
        self.done = done
        self.fixtures: list[Fixture] = []
        self.failures: list[str] = []
        self.failed_questions = 0

    async def run(self, client: AsyncClient, asks: AsyncIterator[Ask]) -> None:
        async for ask in asks:
            started = time.perf_counter()
            try:
                decision = await client.decide(
                    ask.state, ask.questions, model=self.target.model, options=self.target.options
                )
            except OpenJevError as error:
                self.failures.append(f"{ask.case}: {error}")
                self.failed_questions += len(ask.questions)
            else:
                elapsed_ms = (time.perf_counter() - started) * 1000
                given = _fixtures_of(ask, decision, self.target, elapsed_ms)
                missing = sorted(set(ask.questions) - {fixture.id for fixture in given})
                self.failures += [f"{id_}: no answer of the type that was asked" for id_ in missing]
                answered = [fixture for fixture in given if self._usable(fixture)]
                self.failed_questions += len(ask.questions) - len(answered)
                self.journal.append(answered)
                self.fixtures.extend(answered)
            self.done()

    def _usable(self, fixture: Fixture) -> bool:
        """A server may answer anything; a line that cannot be read again would make the whole file useless."""
        try:
            checked(fixture)
        except FixtureError as error:
            self.failures.append(str(error))
            return False
        return True


async def ask_all(
    client: AsyncClient, target: Target, asks: Sequence[Ask], journal: Journal, done: Callable[[], None]
) -> LiveRun:
    """Ask what the journal does not hold yet, `concurrency` requests at a time; `done` is called after each.

    A refused or failed request, after the SDK's retries, is listed and does not stop the others.
    """
    kept, numbers = journal.resume(target.source, asks)
    missing = [asks[number] for number in numbers]
    for _ in range(len(asks) - len(missing)):
        done()
    collector = _Collector(target, journal, done)
    queue = _Queue(missing)
    started = time.perf_counter()
    async with asyncio.TaskGroup() as workers:
        for _ in range(target.concurrency):
            workers.create_task(collector.run(client, queue))
    answered = {fixture.id: fixture for fixture in [*kept, *collector.fixtures]}
    return LiveRun(
        fixtures=tuple(answered[id_] for ask in asks for id_ in ask.questions if id_ in answered),
        failures=tuple(collector.failures),
        failed_questions=collector.failed_questions,
        wall_s=time.perf_counter() - started if missing and not kept else None,
    )


class _Queue:
    """Each ask to exactly one of the workers that iterate over it."""

    def __init__(self, asks: Sequence[Ask]) -> None:
        self._asks = iter(asks)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Ask:
        try:
            return next(self._asks)
        except StopIteration:
            raise StopAsyncIteration from None


def _fixtures_of(ask: Ask, decision: Decision, target: Target, elapsed_ms: float) -> list[Fixture]:
    answers = decision.raw["answers"]
    tokens = Usage.of(decision.raw.get("usage"), questions=len(ask.questions))
    steps = target.options.steps if target.options is not None else None
    return [
        Fixture(
            id=id_,
            source=target.source,
            licence=ask.licence,
            workflow=ask.workflow,
            case=ask.case,
            node=ask.node,
            model=decision.model,
            recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
            type=answers[id_]["type"],
            request=Request(ask.state, question),
            answer=answers[id_],
            reference=None,
            steps=steps,
            latency_ms=round(elapsed_ms, 3),
            usage=tokens,
        )
        for id_, question in ask.questions.items()
        if answers.get(id_, {}).get("type") == question["type"]
    ]
