"""The whole comparison as plain values: what the terminal, JSON, Markdown and HTML outputs show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .baseline import majority, random_guess
from .cost import Cost, Latency, Prices, latency_of, price_of, request_latencies
from .decision import Decision, top_two_margin
from .estimate import Estimate
from .fixture import Fixture
from .mcnemar import McNemar, mcnemar
from .metrics import Thresholds, label_only, measure
from .noise import NoiseFloor, noise_floors
from .pairing import Pair, base_run, join, named_runs
from .reliability import Bin, against_references, against_right, reliability_bins
from .store import FixtureError

__all__ = ["Disagreement", "Report", "Section", "Side", "build_report"]

_MARGINS = (0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, slots=True)
class Side:
    """A name for the reader and the models that answered."""

    name: str
    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """The numbers of one slice of the questions, with the two baselines."""

    name: str
    n: int
    estimates: tuple[Estimate, ...]
    majority: Estimate | None
    random: Estimate | None

    def estimate(self, name: str) -> Estimate | None:
        return next((estimate for estimate in self.estimates if estimate.name == name), None)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A question on which the top answers differ; `margin` is right's top-two margin, None without a distribution."""

    id: str
    workflow: str
    type: str
    margin: float | None
    left: Decision
    right: Decision
    reference: str | None
    state: Any
    question: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Report:
    """`breakdowns`: by type, workflow, options, margin. `unanswered`: questions of right that left never answered."""

    left: Side
    right: Side
    thresholds: Thresholds
    overall: Section
    breakdowns: Mapping[str, tuple[Section, ...]]
    excluded: Mapping[str, int]
    mcnemar: McNemar | None
    noise: tuple[NoiseFloor, ...]
    reliability: Mapping[str, tuple[Bin, ...]]
    latency: Latency | None
    cost: Cost | None
    disagreements: tuple[Disagreement, ...]
    latencies_ms: tuple[float, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. Numbers are not rounded."""
        return asdict(self)


def build_report(
    left: Sequence[Fixture],
    right: Sequence[Fixture],
    *,
    names: tuple[str, str],
    thresholds: Thresholds,
    prices: Prices | None = None,
    wall_s: float | None = None,
) -> Report:
    """Compare left (ours) with right (what ours should be like). Raises FixtureError when nothing can be joined."""
    ours, theirs = base_run(left, side="left"), base_run(right, side="right")
    pairs = join(ours, theirs)
    if not pairs:
        raise FixtureError("no question is answered by both sides under this selection")
    compared = [ours[pair.id] for pair in pairs]
    return Report(
        left=Side(names[0], _models(compared)),
        right=Side(names[1], _models([theirs[pair.id] for pair in pairs])),
        thresholds=thresholds,
        overall=_section("all", pairs, thresholds),
        breakdowns={
            "type": _split(pairs, lambda pair: pair.type, thresholds),
            "workflow": _split(pairs, lambda pair: pair.workflow, thresholds),
            "options": _split(pairs, _options_slice, thresholds),
            "margin": _split(pairs, _margin_slice, thresholds),
        },
        excluded=_excluded(pairs, ours, theirs, thresholds),
        mcnemar=mcnemar(pairs),
        noise=noise_floors(ours, theirs, named_runs(right), thresholds),
        reliability={
            "right": tuple(reliability_bins(against_right(pairs))),
            "reference": tuple(reliability_bins(against_references(pairs))),
            "right_reference": tuple(reliability_bins(against_references(pairs, side="right"))),
        },
        latency=latency_of(compared),
        cost=price_of(compared, prices or Prices(), wall_s=wall_s),
        disagreements=_disagreements(pairs),
        latencies_ms=tuple(request_latencies(compared).values()),
    )


def _section(name: str, pairs: Sequence[Pair], thresholds: Thresholds) -> Section:
    return Section(
        name=name,
        n=len(pairs),
        estimates=measure(pairs, thresholds),
        majority=majority(pairs),
        random=random_guess(pairs),
    )


def _split(pairs: Sequence[Pair], key: Callable[[Pair], str], thresholds: Thresholds) -> tuple[Section, ...]:
    slices: dict[str, list[Pair]] = {}
    for pair in pairs:
        slices.setdefault(key(pair), []).append(pair)
    return tuple(_section(name, slices[name], thresholds) for name in sorted(slices))


def _margin_slice(pair: Pair) -> str:
    margin = top_two_margin(pair.right)
    if margin is None:
        return "not recorded"
    low, high = _bracket(round(margin, 6), _MARGINS)
    return f"{low or 0:.2f} to {high or 1:.2f}"


def _options_slice(pair: Pair) -> str:
    count = len(pair.allowed)
    if not count:
        return "not recorded"
    if count <= 2:
        return str(count)
    return "3-4" if count <= 4 else "5-9" if count <= 9 else "more than 9"


def _bracket(value: float, edges: Sequence[float]) -> tuple[float | None, float | None]:
    below = [edge for edge in edges if edge <= value]
    above = [edge for edge in edges if edge > value]
    return (below[-1] if below else None), (above[0] if above else None)


def _excluded(
    pairs: Sequence[Pair], left: Mapping[str, Fixture], right: Mapping[str, Fixture], thresholds: Thresholds
) -> dict[str, int]:
    bare = sum(label_only(pair, thresholds) for pair in pairs)
    counts = {
        "unanswered by left": len(right) - len(pairs),
        "unknown to right": len(set(left) - set(right)),
        "without a top answer": sum(pair.left.label is None or pair.right.label is None for pair in pairs),
        "without a reference": sum(pair.reference_shares is None for pair in pairs),
        "tied reference": sum(pair.reference_shares is not None and pair.reference is None for pair in pairs),
    }
    return {**counts, "label only at a threshold": bare} if bare else counts


def _disagreements(pairs: Sequence[Pair]) -> tuple[Disagreement, ...]:
    found = [
        Disagreement(
            id=pair.id,
            workflow=pair.workflow,
            type=pair.type,
            margin=top_two_margin(pair.right),
            left=pair.left,
            right=pair.right,
            reference=pair.reference,
            state=pair.request.state if pair.request is not None else None,
            question=pair.request.question if pair.request is not None else None,
        )
        for pair in pairs
        if pair.left.label is not None and pair.right.label is not None and pair.left.label != pair.right.label
    ]
    return tuple(sorted(found, key=lambda row: (-(row.margin if row.margin is not None else -1.0), row.id)))


def _models(fixtures: Sequence[Fixture]) -> tuple[str, ...]:
    return tuple(sorted({fixture.model for fixture in fixtures}))
