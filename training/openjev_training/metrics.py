"""Numbers over records: accuracies, errors, calibration and sensitivities. Probabilities are rows of answers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from openjev_server.calibration import report

from .predict import Record

__all__ = ["balanced_accuracy", "brier", "ece", "flip_rate", "summary"]

Float = NDArray[np.float64]


def balanced_accuracy(gold: Sequence[int], chosen: Sequence[int]) -> float:
    """Mean recall of the classes that occur."""
    g, c = np.asarray(gold), np.asarray(chosen)
    return float(np.mean([np.mean(c[g == k] == k) for k in np.unique(g)]))


def ece(confidence: Sequence[float], right: Sequence[bool], bins: int = report.BINS) -> float:
    """`report.ece` of lists: the expected calibration error over equal-mass bins."""
    return report.ece(np.asarray(confidence, float), np.asarray(right, float), bins)


def brier(probabilities: Sequence[Sequence[float]], gold: Sequence[int]) -> float:
    """Mean squared error over all answers (Brier 1950), 0 to 2."""
    total = 0.0
    for p, g in zip(probabilities, gold, strict=True):
        total += sum((x - (i == g)) ** 2 for i, x in enumerate(p))
    return total / len(gold)


def flip_rate(plain: Iterable[Record], changed: Iterable[Record]) -> float:
    """Share of rows whose top answer differs between two variants."""
    first = {(r.task, r.number): _top(r) for r in plain}
    flips = [_top(r) != first[r.task, r.number] for r in changed if (r.task, r.number) in first]
    return float(np.mean(flips)) if flips else float("nan")


def _top(record: Record, step: int = -1) -> int:
    p = record.steps[step]
    return max(range(len(p)), key=p.__getitem__)


def _task(records: Sequence[Record]) -> dict[str, float]:
    gold = [r.gold for r in records]
    out: dict[str, float] = {"rows": len(records)}
    for step in range(len(records[0].steps)):
        chosen = [_top(r, step) for r in records]
        name = f"step {step + 1}"
        if records[0].kind == "noul":
            out[name] = balanced_accuracy(gold, chosen)
        else:
            out[name] = float(np.mean(np.asarray(gold) == np.asarray(chosen)))
    last = [r.steps[-1] for r in records]
    out["majority"] = 0.5 if records[0].kind == "noul" else max(Counter(gold).values()) / len(gold)
    if records[0].kind == "score":
        expected = [float(np.dot(np.arange(len(p)), p)) for p in last]
        out["mae"] = float(np.mean(np.abs(np.asarray(expected) - np.asarray(gold))))
    right = [_top(r) == r.gold for r in records]
    out["confidence"] = float(np.mean([max(p) for p in last]))
    out["ece"] = ece([max(p) for p in last], right)
    out["brier"] = brier(last, gold)
    return out


def summary(records: Sequence[Record]) -> dict[str, dict[str, dict[str, float]]]:
    """{measure: {task or `macro KIND`: numbers}}, and under `sensitivity` the flip rates of the variants per type."""
    out: dict[str, dict[str, dict[str, float]]] = {}
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    kinds_of: dict[str, set[str]] = defaultdict(set)
    for r in records:
        kinds_of[r.task].add(r.kind)
    for r in records:
        if r.variant == "plain":  # a task of two types is two tasks
            name = r.task if len(kinds_of[r.task]) == 1 else f"{r.task} ({r.kind})"
            groups[r.measure, name].append(r)
    macro: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    pooled: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for (measure, task), members in sorted(groups.items()):
        numbers = _task(members)
        out.setdefault(measure, {})[task] = numbers
        macro[measure, members[0].kind].append(numbers)
        pooled[measure, members[0].kind] += members
    for (measure, kind), parts in macro.items():
        mean = {k: float(np.mean([p[k] for p in parts])) for k in parts[0] if k != "rows"}
        members = pooled[measure, kind]
        mean["rows"] = len(members)
        mean["ece"] = ece([max(r.steps[-1]) for r in members], [_top(r) == r.gold for r in members])
        out[measure][f"macro {kind}"] = mean
    kinds = sorted({r.kind for r in records})
    for variant in sorted({r.variant for r in records} - {"plain"}):
        for kind in kinds:
            some = [r for r in records if r.kind == kind and r.measure == "held-out"]
            rate = flip_rate((r for r in some if r.variant == "plain"), (r for r in some if r.variant == variant))
            if not math.isnan(rate):
                out.setdefault("sensitivity", {}).setdefault(variant, {})[kind] = rate
    return out
