"""Rows are free exactly when nobody uses them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.engine.rows import PoolFull, RowPool, Rows


@given(st.lists(st.tuples(st.sampled_from(["take", "retain", "release"]), st.integers(0, 12)), max_size=40))
def test_no_row_has_two_owners(actions: list[tuple[str, int]]) -> None:
    pool = RowPool(30)
    held: list[Rows] = []
    for action, number in actions:
        users = np.zeros(30, int)
        for rows in held:
            users[rows] += 1
        assert pool.free == (users == 0).sum()
        if action == "take" and number <= pool.free:
            rows = pool.take(number)
            assert (users[rows] == 0).all()
            assert (np.diff(rows) > 0).all()
            held.append(rows)
        elif action == "take":
            with pytest.raises(PoolFull, match=f"{number} rows"):
                pool.take(number)
        elif held and action == "retain":
            pool.retain(held[number % len(held)])
            held.append(held[number % len(held)])
        elif held:
            pool.release(held.pop(number % len(held)))
    for rows in held:
        pool.release(rows)
    assert pool.free == 30


def test_rows_are_consecutive_where_they_can_be() -> None:
    pool = RowPool(20)
    first, second = pool.take(5), pool.take(5)
    pool.release(first)
    assert pool.take(8).tolist() == list(range(10, 18))
    assert pool.take(4).tolist() == [0, 1, 2, 3]
    assert pool.take(3).tolist() == [4, 18, 19], "scattered when no run is long enough"
    assert second.tolist() == [5, 6, 7, 8, 9]


def test_a_row_released_twice_is_an_error() -> None:
    pool = RowPool(4)
    rows = pool.take(2)
    pool.release(rows)
    with pytest.raises(AssertionError, match="more often"):
        pool.release(rows)
