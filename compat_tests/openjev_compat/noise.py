"""Right's own noise floor: the same questions answered again, beside left on those questions."""

from __future__ import annotations

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
    """`repeated`: the named run against the base run. `left`: left against the base run on the same questions."""

    run: str
    n: int
    repeated: tuple[Estimate, ...]
    left: tuple[Estimate, ...]


def noise_floors(
    left: Mapping[str, Fixture],
    right: Mapping[str, Fixture],
    runs: Mapping[str, Mapping[str, Fixture]],
    thresholds: Thresholds,
) -> tuple[NoiseFloor, ...]:
    """One floor per run that answers a question of the base run again."""
    floors: list[NoiseFloor] = []
    for run, answers in sorted(runs.items()):
        again = {id_: answers[id_] for id_ in answers if id_ in right and right[id_] is not answers[id_]}
        if not again:
            continue
        base = {id_: right[id_] for id_ in again}
        floors.append(
            NoiseFloor(
                run=run,
                n=len(again),
                repeated=_measured(again, base, thresholds),
                left=_measured(left, base, thresholds),
            )
        )
    return tuple(floors)


def _measured(
    left: Mapping[str, Fixture], right: Mapping[str, Fixture], thresholds: Thresholds
) -> tuple[Estimate, ...]:
    pairs = join(left, right)
    estimates: Sequence[Estimate] = measure(pairs, thresholds) if pairs else ()
    return tuple(estimate for estimate in estimates if estimate.name in NOISE_METRICS)
