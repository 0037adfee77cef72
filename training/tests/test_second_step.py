"""The second step is judged where the first is unsure."""

from __future__ import annotations

from openjev_training.predict import Record
from openjev_training.second_step import unsure


def _record(number: int, first: float, second: float, gold: int) -> Record:
    return Record("held-out", "plain", "t", "noul", number, gold, ((first, 1 - first), (second, 1 - second)))


def test_only_the_least_sure_rows_of_each_task_count() -> None:
    sure = [_record(i, 0.99, 0.01, 0) for i in range(6)]
    found = unsure([*sure, _record(6, 0.55, 0.4, 1), _record(7, 0.6, 0.7, 0)])
    assert found == {
        "noul": {"rows": 2, "one step": 0.5, "two steps": 1, "changed": 0.5, "put right": 0.5, "put wrong": 0}
    }
