"""The seed's three modes and ours on the public questions, and whether they come out as the seed recorded them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from openjev_server.canvas import Layout

from .estimate import Estimate, share
from .fixture import Fixture
from .pairing import Pair, join
from .public_cases import Cases, Recorded

__all__ = [
    "MODES",
    "OWN_WORDING",
    "PUBLIC_QUESTIONS",
    "SEED_WORDING",
    "Mode",
    "Outcome",
    "Tolerance",
    "measure_mode",
    "seed_answers",
]


PUBLIC_QUESTIONS = 408
"""A verdict is on all of them or on none."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of asking. `seed_run` names the seed's recorded run, with how many of its answers the references share."""

    name: str
    layout: Layout
    steps: int
    seed_run: str | None = None


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("seed, one question", Layout.ISOLATED, 1, "public_evals_1step"),
        Mode("seed, grouped, 1 step", Layout.GROUPED, 1, "public_evals_grouped_1step"),
        Mode("seed, grouped, 2 steps", Layout.GROUPED, 2, "public_evals_grouped_2step"),
        Mode("ours, isolated, 2 steps", Layout.ISOLATED, 2),
        Mode("ours, isolated, 1 step", Layout.ISOLATED, 1),
    )
}


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How close to the seed's recording is close enough."""

    right: int
    """Largest difference of the number of right answers, of 337."""
    same: float
    """Smallest share of questions with the seed's own answer."""


OWN_WORDING = Tolerance(6, 0.93)
"""With this project's wording of the prompt."""
SEED_WORDING = Tolerance(4, 0.97)
"""With the seed's own, as a template file."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mode's numbers. `within` is whether they are within the tolerance over the questions that were asked, None
    where there is nothing of the seed to compare with; what it means for the whole says `SeedReport.passed`."""

    mode: str
    template: str
    questions: int
    answered: int
    right: Estimate | None
    seed_questions: int
    """Of the questions, those that the seed's recording of this mode answers."""
    seed_right: int | None
    jev_right: int
    same_as_seed: Estimate | None
    same_as_jev: Estimate | None
    seconds: float
    input_tokens: int
    within: bool | None
    reasons: tuple[str, ...]
    """Why it is not within."""


def seed_answers(fixtures: Sequence[Fixture]) -> list[Fixture]:
    """The same with the answer that the seed would read, the greedy one, and nothing else of it."""
    return [
        replace(f, answer={"type": f.type, "choice" if f.type == "choice" else "label": f.answer["greedy"]})
        for f in fixtures
    ]


def measure_mode(
    mode: Mode,
    answers: Sequence[Fixture],
    cases: Cases,
    recorded: Recorded,
    tolerance: Tolerance,
    *,
    template: str,
    seconds: float,
) -> Outcome:
    """Compares one mode's answers with Jev's, the references, and the seed's own where it ran this mode.

    The seed's count of right answers is over the same questions, so that a part of the cases is judged too.
    """
    ours = {fixture.id: fixture for fixture in answers}
    pairs = join(ours, cases.jev)
    jev_right = sum(pair.right.label == pair.reference for pair in _scored(pairs))
    right = share("right", [pair.left.label == pair.reference for pair in _scored(pairs)])
    usage = {(f.case, f.node): f.usage.input_tokens for f in answers if f.usage is not None}
    outcome = Outcome(
        mode=mode.name,
        template=template,
        questions=len(cases.jev),
        answered=len(pairs),
        right=right,
        seed_questions=0,
        seed_right=None,
        jev_right=jev_right,
        same_as_seed=None,
        same_as_jev=share("agreement", [pair.left.label == pair.right.label for pair in pairs]),
        seconds=seconds,
        input_tokens=sum(usage.values()),
        within=None,
        reasons=(),
    )
    seed = {id_: f for id_, f in recorded.seed.get(mode.seed_run or "", {}).items() if id_ in cases.jev}
    outcome = replace(outcome, seed_questions=len(seed))
    return _judged(outcome, join(ours, seed), join(seed, cases.jev), tolerance) if seed else outcome


def _judged(outcome: Outcome, against_seed: list[Pair], seed: list[Pair], tolerance: Tolerance) -> Outcome:
    same = share("same", [pair.left.label == pair.right.label for pair in against_seed])
    seed_right = sum(pair.left.label == pair.reference for pair in _scored(seed))
    right = 0 if outcome.right is None or outcome.right.hits is None else outcome.right.hits
    reasons = []
    if outcome.answered < outcome.questions:
        reasons.append(f"{outcome.questions - outcome.answered} questions without an answer")
    if abs(right - seed_right) > tolerance.right:
        reasons.append(f"{right} right answers are more than {tolerance.right} away from the seed's {seed_right}")
    if same is None or same.value < tolerance.same:
        reasons.append(f"{same.value if same else 0:.1%} of the seed's answers are fewer than {tolerance.same:.0%}")
    return replace(outcome, seed_right=seed_right, same_as_seed=same, within=not reasons, reasons=tuple(reasons))


def _scored(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.reference is not None]
