"""What right means for an engine: like a reference, alone as among others, and never lost for any length.

`gpu_check` runs these on checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from openjev_server.engine.protocol import CanvasBlock, Engine, EngineError, EngineRequest, EngineResult, Float32

from benchmarks.workload import request, tokens

__all__ = ["MARGIN", "RELATIVE_ERROR", "against_reference", "drift", "packing", "soak"]

GROUP = 31
MARGIN = 0.1
"""Nats between the reference's first two candidates of a slot, above which they may not change places."""
RELATIVE_ERROR = 2e-2
"""Of a slot's logits."""
SHOWN = 20


def against_reference(fast: Engine, reference: Engine, requests: Sequence[EngineRequest]) -> dict[str, Any]:
    """Every slot of every step. The error of a slot is |fast - reference| / |reference| over its candidates' logits."""
    pairs = list(_pairs(fast, reference, requests))
    errors = [
        float(np.linalg.norm(ours.logits - true.logits)) / max(float(np.linalg.norm(true.logits)), 1e-9)
        for ours, true in pairs
    ]
    changes = [_change(ours, true) for ours, true in pairs]
    flips = [
        {"margin": round(true.margin, 3), "change": round(change, 4), "error": float(f"{error:.3g}")}
        for (ours, true), change, error in zip(pairs, changes, errors, strict=True)
        if _flipped(ours, true)
    ]
    above = [flip for flip in flips if flip["margin"] > MARGIN]
    return {
        "requests": len(requests),
        "slots": len(pairs),
        "relative_error_median": _short(np.median(errors)),
        "relative_error_p99": _short(np.quantile(errors, 0.99)),
        "relative_error_max": _short(max(errors)),
        "slots_above_limit": sum(error > RELATIVE_ERROR for error in errors),
        "probability_change_p99": _short(np.quantile(changes, 0.99)),
        "probability_change_max": _short(max(changes)),
        "share_above_margin": _share_above(pairs),
        "flips": len(flips),
        "flips_above_margin": len(above),
        "flipped": sorted(flips, key=lambda flip: -flip["margin"])[:SHOWN],
    }


def drift(quantised: Engine, plain: Engine, requests: Sequence[EngineRequest]) -> dict[str, Any]:
    """What other weights change: the largest change of a slot's probabilities, and other likeliest answers."""
    pairs = list(_pairs(quantised, plain, requests))
    changes = [_change(ours, true) for ours, true in pairs]
    flips = [true.margin for ours, true in pairs if _flipped(ours, true)]
    above = sum(margin > MARGIN for margin in flips)
    clear = sum(true.margin > MARGIN for _, true in pairs)
    return {
        "requests": len(requests),
        "slots": len(pairs),
        **_moved(changes),
        "flip_share": round(len(flips) / len(pairs), 4),
        "share_above_margin": _share_above(pairs),
        "flip_share_above_margin": round(above / max(clear, 1), 4),
    }


def packing(engine: Engine, requests: Sequence[EngineRequest], rng: np.random.Generator) -> dict[str, Any]:
    """Alone and among others: half of the requests are seen alone first, the others packed first.

    Which comes second may find its state in a cache: a hit must agree with a miss, too.
    """
    half = len(requests) // 2
    alone = [_one(engine, one) for one in requests[:half]]
    order = rng.permutation(len(requests))
    packed: dict[int, EngineResult] = {}
    for first in range(0, len(order), GROUP):
        group = [int(number) for number in order[first : first + GROUP]]
        packed |= zip(group, _answers(engine, [requests[number] for number in group]), strict=True)
    alone += [_one(engine, one) for one in requests[half:]]
    changes = [
        float(np.abs(single.probabilities - among.probabilities).max())
        for number, one in enumerate(requests)
        for block, mine, other in zip(one.blocks, alone[number].blocks, packed[number].blocks, strict=True)
        for single, among in zip(_slots(block, mine), _slots(block, other), strict=True)
    ]
    return {
        "requests": len(requests),
        "packed_with": GROUP - 1,
        **_moved(changes),
    }


def soak(engine: Engine, rng: np.random.Generator, *, count: int, longest: int) -> dict[str, Any]:
    """Random requests; lengths even in their logarithm, 1 to 40 at a time, some about a state that came before."""
    vocab = engine.info.vocab_size
    started = time.perf_counter()
    answered = total = 0
    failures: list[str] = []
    earlier = tokens(rng, 1, vocab)
    while answered + len(failures) < count:
        batch = []
        for _ in range(min(int(rng.integers(1, 41)), count - answered - len(failures))):
            if rng.random() > 0.2:
                earlier = tokens(rng, int(np.exp(rng.uniform(0, np.log(longest)))), vocab)
            shape = {"questions": int(rng.integers(1, 6)), "suffix": int(rng.integers(0, 60))}
            width, steps, options = int(rng.integers(1, 33)), int(rng.integers(1, 4)), int(rng.integers(2, 9))
            batch.append(request(rng, vocab, state=earlier, width=width, steps=steps, options=options, **shape))
        total += sum(one.tokens for one in batch)
        for outcome in engine.run(batch):
            if isinstance(outcome, EngineError):
                failures.append(str(outcome))
            elif not all(np.isfinite(block.log_probs).all() for block in outcome.blocks):
                failures.append("not finite")
            else:
                answered += 1
    return {
        "requests": count,
        "tokens": total,
        "answered": answered,
        "failures": failures[:20],
        "seconds": round(time.perf_counter() - started, 1),
    }


@dataclass(frozen=True, slots=True)
class _Slot:
    logits: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    """Over the candidates alone."""

    @property
    def margin(self) -> float:
        """Nats between the first two."""
        first, second = np.sort(self.logits)[::-1][:2]
        return float(first - second)


def _pairs(one: Engine, other: Engine, requests: Sequence[EngineRequest]) -> Iterator[tuple[_Slot, _Slot]]:
    for asked, ours, theirs in zip(requests, _answers(one, requests), _answers(other, requests), strict=True):
        for block, mine, true in zip(asked.blocks, ours.blocks, theirs.blocks, strict=True):
            yield from zip(_slots(block, mine), _slots(block, true), strict=True)


def _change(one: _Slot, other: _Slot) -> float:
    return float(np.abs(one.probabilities - other.probabilities).max())


def _moved(changes: Sequence[float]) -> dict[str, float]:
    return {
        "probability_change_median": _short(np.median(changes)),
        "probability_change_p99": _short(np.quantile(changes, 0.99)),
        "probability_change_max": _short(max(changes)),
    }


def _flipped(one: _Slot, other: _Slot) -> bool:
    return int(one.logits.argmax()) != int(other.logits.argmax())


def _share_above(pairs: Sequence[tuple[_Slot, _Slot]]) -> float:
    return round(sum(true.margin > MARGIN for _, true in pairs) / len(pairs), 4)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _slots(block: CanvasBlock, answer: Any) -> Iterator[_Slot]:
    """Every slot of every step and replica."""
    steps, replicas, _ = answer.log_probs.shape
    for step in range(steps):
        for replica in range(replicas):
            row: Float32 = answer.log_probs[step, replica]
            for slot in range(len(block.slots)):
                kept = row[block.offsets[slot] : block.offsets[slot + 1]].astype(np.float64)
                shares = np.exp(kept - kept.max())
                yield _Slot(kept + float(answer.logsumexp[step, replica, slot]), shares / shares.sum())


def _answers(engine: Engine, requests: Sequence[EngineRequest]) -> list[EngineResult]:
    """Raises EngineError when one fails."""
    answers = []
    for outcome in engine.run(requests):
        if isinstance(outcome, EngineError):
            raise outcome
        answers.append(outcome)
    return answers


def _one(engine: Engine, one: EngineRequest) -> EngineResult:
    return _answers(engine, [one])[0]
