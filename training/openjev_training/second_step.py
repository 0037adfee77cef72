"""What the second denoising step does where the first is unsure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from .predict import Record

__all__ = ["unsure"]


def unsure(records: Sequence[Record], share: float = 0.25) -> Mapping[str, dict[str, float]]:
    """Accuracy of one and of two steps on the least sure `share` of each type's held-out rows, and how many changed.

    Least sure by the first step's top probability, within each task, so that every task counts.
    """
    tasks: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.measure == "held-out" and record.variant == "plain" and len(record.steps) > 1:
            tasks[record.task].append(record)
    kinds: dict[str, list[Record]] = defaultdict(list)
    for members in tasks.values():
        members.sort(key=lambda r: max(r.steps[0]))
        kinds[members[0].kind] += members[: max(1, round(len(members) * share))]
    out: dict[str, dict[str, float]] = {}
    for kind, members in sorted(kinds.items()):
        tops = [[int(np.argmax(p)) for p in r.steps[:2]] for r in members]
        first = [top[0] == r.gold for top, r in zip(tops, members, strict=True)]
        second = [top[1] == r.gold for top, r in zip(tops, members, strict=True)]
        out[kind] = {
            "rows": len(members),
            "one step": float(np.mean(first)),
            "two steps": float(np.mean(second)),
            "changed": float(np.mean([a != b for a, b in tops])),
            "put right": float(np.mean([b and not a for a, b in zip(first, second, strict=True)])),
            "put wrong": float(np.mean([a and not b for a, b in zip(first, second, strict=True)])),
        }
    return out
