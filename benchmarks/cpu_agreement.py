"""How far 8-bit products move the embedded checkpoint's answers: top answers and probabilities against float32's."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from openjev_server.canvas.compile import CompiledRequest, Compiler, Layout
from openjev_server.canvas.readout import read_out
from openjev_server.engine.protocol import Engine, EngineResult
from openjev_server.wire.parse import parse_request

__all__ = ["Pair", "agreement", "spread_rows", "summary"]

BATCH = 16
SMALL_MARGIN = 0.1
"""Nats between the two likeliest answers."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One question's probabilities by the two engines, uncalibrated."""

    type: str
    reference: np.ndarray[Any, np.dtype[np.float64]]
    other: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def agrees(self) -> bool:
        return bool(self.reference.argmax() == self.other.argmax())

    @property
    def margin(self) -> float:
        """Nats by which the reference prefers its answer."""
        if len(self.reference) < 2:
            return np.inf
        second, first = np.sort(self.reference)[-2:]
        return float(np.log(max(first, 1e-30) / max(second, 1e-30)))


def spread_rows(path: Path, count: int) -> list[dict[str, Any]]:
    """`count` rows of a task file, or all: every task's first row, then every task's second, and so on."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, dict[str, Any]]] = []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            seen[row["task"]] += 1
            if seen[row["task"]] <= count:
                ranked.append((seen[row["task"]], len(ranked), row))
    return [row for *_, row in sorted(ranked, key=lambda entry: entry[:2])[:count]]


def agreement(
    compiler: Compiler, reference: Engine, other: Engine, rows: Sequence[dict[str, Any]], steps: int
) -> dict[str, Any]:
    """Asks both engines every row and compares (`summary`)."""
    pairs = []
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH]
        compiled = [_compiled(compiler, row, steps) for row in some]
        first, second = (list(_answers(engine, compiled)) for engine in (reference, other))
        pairs += [Pair(row["type"], *both) for row, *both in zip(some, first, second, strict=True)]
    kinds = sorted({pair.type for pair in pairs})
    found = {kind: summary([pair for pair in pairs if pair.type == kind]) for kind in kinds}
    return {"steps": steps, **summary(pairs), "by_type": found}


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Rows, those with the same top answer, and how sure float32 was of the others'."""
    changed = [pair.margin for pair in pairs if not pair.agrees]
    sure = [pair for pair in pairs if pair.margin >= SMALL_MARGIN]
    moved = [float(np.abs(pair.reference - pair.other).max()) for pair in pairs]
    return {
        "rows": len(pairs),
        "same_answer": len(pairs) - len(changed),
        "share": round(1 - len(changed) / len(pairs), 4),
        "largest_margin_lost_nats": round(max(changed, default=0.0), 3),
        "rows_of_margin_0.1_nats": len(sure),
        "same_answer_of_those": sum(pair.agrees for pair in sure),
        "probability_moved": {
            "median": round(float(np.median(moved)), 4),
            "p99": round(float(np.quantile(moved, 0.99)), 4),
            "largest": round(max(moved), 4),
        },
    }


def _compiled(compiler: Compiler, row: dict[str, Any], steps: int) -> CompiledRequest:
    question = {key: row[key] for key in ("type", "instructions", "criteria")}
    parsed = parse_request(
        {"model": "jev-latest", "state": row["state"], "questions": {"q": question}}, unknown_fields="reject"
    )
    return compiler.compile(parsed.state, parsed.questions, layout=Layout.ISOLATED, steps=steps, replicas=1)


def _answers(engine: Engine, compiled: Sequence[CompiledRequest]) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    for one, result in zip(compiled, engine.run([each.request for each in compiled]), strict=True):
        if not isinstance(result, EngineResult):
            raise result
        (probabilities,) = read_out(one, result)
        yield np.asarray(probabilities, np.float64)
