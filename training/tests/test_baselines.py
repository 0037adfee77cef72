"""What the checkpoint is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from openjev_training.baselines import Embedder, embedding_records, sparrow_records
from openjev_training.rows import Row

ROWS = [
    Row("c", "choice", "a bus to Rome", "Which?", ("bus", "hotel"), ("roads", None), 0, None),
    Row("n", "noul", "a bus", "Is it?", ("yes", "no"), (None, None), 1, None),
    Row("s", "score", "a bus", "How?", ("low", "mid", "high"), (None,) * 3, 2, None),
]


def test_the_small_model_is_asked_in_the_apis_own_form() -> None:
    asked: list[dict[str, Any]] = []

    def ask(state: str, questions: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        asked.append(questions["q"])
        kind = questions["q"]["type"]
        if kind == "noul":
            return {"q": {"type": "noul", "noul": 0.25}}
        names = list(questions["q"]["criteria"])
        return {"q": {"type": kind, "probabilities": {n: 1 / len(names) for n in names}}}

    records = sparrow_records(ask, {"m": ROWS}, rows=10)
    assert [a.get("criteria") for a in asked] == [{"bus": "roads", "hotel": None}, None, ["low", "mid", "high"]]
    assert records[1].steps == ((0.25, 0.75),)
    assert [len(r.steps[0]) for r in records] == [2, 2, 3]


class _Letters(Embedder):
    """Texts that share letters are near each other."""

    def __init__(self) -> None:
        pass

    def __call__(self, texts: Any) -> NDArray[np.float32]:
        counts = np.array([[t.count(chr(c)) for c in range(97, 123)] for t in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def test_the_embedding_takes_the_nearest_option() -> None:
    row = Row("c", "choice", "abc", "abc", ("xyz", "cab"), (None, None), 1, None)
    (record,) = embedding_records(_Letters(), {"m": [row]}, rows=1)
    assert record.steps[0][1] > 0.99
