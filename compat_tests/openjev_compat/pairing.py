"""Two sides' answers to the same questions, joined by question id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .decision import Decision, decide, reference_label
from .fixture import Fixture, QuestionType, Request, Usage
from .store import FixtureError

__all__ = ["Pair", "Selection", "base_run", "join", "named_runs", "select"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Which fixtures to look at: a workflow prefix, a question type, a step count, a run name (None: no condition)."""

    on: str | None = None
    type: str | None = None
    steps: int | None = None
    run: str | None = None

    def takes(self, fixture: Fixture) -> bool:
        workflow = fixture.workflow
        return (
            (self.on is None or workflow == self.on or workflow.startswith(self.on.rstrip("/") + "/"))
            and (self.type is None or fixture.type == self.type)
            and (self.steps is None or fixture.steps is None or fixture.steps == self.steps)
            and (self.run is None or fixture.run == self.run)
        )


@dataclass(frozen=True, slots=True)
class Pair:
    """One question answered by both sides. `reference` is None when missing or tied."""

    id: str
    workflow: str
    case: str
    type: QuestionType
    allowed: tuple[str, ...]
    left: Decision
    right: Decision
    reference: str | None
    reference_shares: Mapping[str, float] | None
    request: Request | None
    latency_ms: float | None
    usage: Usage | None
    request_key: tuple[str, str | None]


def select(fixtures: Iterable[Fixture], selection: Selection) -> list[Fixture]:
    return [fixture for fixture in fixtures if selection.takes(fixture)]


def base_run(fixtures: Sequence[Fixture], *, side: str) -> dict[str, Fixture]:
    """One answer per question: the unnamed run, or the only run there is.

    Raises FixtureError when several runs answer one question and none is the unnamed one.
    """
    by_id: dict[str, list[Fixture]] = {}
    for fixture in fixtures:
        by_id.setdefault(fixture.id, []).append(fixture)
    chosen: dict[str, Fixture] = {}
    for id_, candidates in by_id.items():
        unnamed = [fixture for fixture in candidates if fixture.run is None]
        pool = unnamed if unnamed else candidates
        if len(pool) > 1:
            names = sorted({f"run {fixture.run or '-'}, steps {fixture.steps or '-'}" for fixture in fixtures})
            raise FixtureError(
                f"the {side} side answers {id_} more than once ({'; '.join(names)}): "
                f"choose one file, or use {'--steps or --run' if side == 'left' else '--on'}"
            )
        chosen[id_] = pool[0]
    return chosen


def named_runs(fixtures: Sequence[Fixture]) -> dict[str, dict[str, Fixture]]:
    """The variants and repetitions, by run name, then by question id."""
    runs: dict[str, dict[str, Fixture]] = {}
    for fixture in fixtures:
        if fixture.run is not None:
            runs.setdefault(fixture.run, {})[fixture.id] = fixture
    return runs


def join(left: Mapping[str, Fixture], right: Mapping[str, Fixture]) -> list[Pair]:
    """The questions that both sides answer, in the right side's order. Raises FixtureError when types differ."""
    pairs: list[Pair] = []
    for id_, theirs in right.items():
        ours = left.get(id_)
        if ours is None:
            continue
        if ours.type != theirs.type:
            raise FixtureError(f"{id_} is a {ours.type} on the left and a {theirs.type} on the right")
        allowed = _allowed(ours, theirs)
        shares = theirs.reference if theirs.reference is not None else ours.reference
        pairs.append(
            Pair(
                id=id_,
                workflow=theirs.workflow,
                case=theirs.case,
                type=theirs.type,
                allowed=allowed,
                left=decide(ours, allowed),
                right=decide(theirs, allowed),
                reference=reference_label(shares),
                reference_shares=shares,
                request=theirs.request if theirs.request is not None else ours.request,
                latency_ms=ours.latency_ms,
                usage=ours.usage,
                request_key=(ours.case, ours.node),
            )
        )
    return pairs


def _allowed(ours: Fixture, theirs: Fixture) -> tuple[str, ...]:
    """The allowed answers as whoever kept the request knows them, else as the right side, else as the left."""
    for fixture in (theirs, ours):
        if fixture.request is not None or fixture.options is not None:
            return fixture.allowed
    return theirs.allowed or ours.allowed
