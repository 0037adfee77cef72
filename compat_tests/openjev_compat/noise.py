"""Right's own noise floor: the same questions answered again, beside left on those questions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .estimate import Estimate
from .fixture import Fixture
from .metrics import Thresholds, measure
from .pairing import join

__all__ = ["NOISE_METRICS", "NoiseFloor", "noise_floors"]

NOISE_METRICS = ("agreement", "total_variation", "noul_delta", "score_error", "gate_changed")


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """`repeated`: the named run against the base run. `left`: left against the base run on the same questions.

    `model` is another version of the base run's model when the run is by that: then it is no plain repetition.
    """

    run: str
    n: int
    repeated: tuple[Estimate, ...]
    left: tuple[Estimate, ...]
    model: str | None = None


def noise_floors(
    left: Mapping[str, Fixture],
    right: Mapping[str, Fixture],
    runs: Mapping[str, Mapping[str, Fixture]],
    thresholds: Thresholds,
) -> tuple[NoiseFloor, ...]:
    """One floor per run in which the base run's model, in any version, answers a question again."""
    floors: list[NoiseFloor] = []
    for run, answers in sorted(runs.items()):
        again = {id_: answers[id_] for id_ in answers if id_ in right and _again(answers[id_], right[id_])}
        if not again:
            continue
        base = {id_: right[id_] for id_ in again}
        floors.append(
            NoiseFloor(
                run=run,
                n=len(again),
                repeated=_measured(again, base, thresholds),
                left=_measured(left, base, thresholds),
                model=_other_model(again, base),
            )
        )
    return tuple(floors)


def _again(answer: Fixture, base: Fixture) -> bool:
    """Not the base's own line, nor a run of somebody else's model on the same questions."""
    return answer is not base and _family(answer.model) == _family(base.model)


def _family(model: str) -> str:
    """`typesafe-ai/jev (1.13)`, `jev-1.14.0` and `jev` are one."""
    return re.split(r"[^a-z]", model.lower().rsplit("/", maxsplit=1)[-1], maxsplit=1)[0]


def _other_model(again: Mapping[str, Fixture], base: Mapping[str, Fixture]) -> str | None:
    others = sorted({answer.model for id_, answer in again.items() if answer.model != base[id_].model})
    return ", ".join(others) or None


def _measured(
    left: Mapping[str, Fixture], right: Mapping[str, Fixture], thresholds: Thresholds
) -> tuple[Estimate, ...]:
    pairs = join(left, right)
    estimates: Sequence[Estimate] = measure(pairs, thresholds) if pairs else ()
    return tuple(estimate for estimate in estimates if estimate.name in NOISE_METRICS)
