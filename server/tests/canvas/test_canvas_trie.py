from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from openjev_server.canvas.trie import Trie, differing_columns

ROWS = st.integers(1, 9).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 3), min_size=width, max_size=width), min_size=1, max_size=12)
)


def brute_force(rows: list[list[int]], slots: list[int], logits: NDArray[np.float64]) -> list[float]:
    """Walks every row alone: at each slot, a softmax over the tokens that rows with the same past have there."""
    total = []
    for row in rows:
        p = 1.0
        for depth, slot in enumerate(slots):
            alike = {tuple(r) for r in rows if all(r[s] == row[s] for s in slots[:depth])}
            children = {r[slot] for r in alike}
            p *= float(np.exp(logits[depth, row[slot]])) / sum(float(np.exp(logits[depth, c])) for c in children)
        total.append(p / sum(r == row for r in rows))
    return total


@given(rows=ROWS, seed=st.integers(0, 2**32))
def test_marginals_are_the_walk_down_the_trie(rows: list[list[int]], seed: int) -> None:
    array = np.array(rows, dtype=np.int32)
    slots = differing_columns(array)
    trie = Trie.of(array[:, slots])
    logits = np.random.default_rng(seed).normal(0, 3, (len(slots), 4))
    flat = [logits[i, t] for i in range(trie.slots) for t in trie.candidates[trie.offsets[i] : trie.offsets[i + 1]]]
    got = trie.probabilities(np.array([flat]))[0]
    np.testing.assert_allclose(got, brute_force(rows, slots.tolist(), logits), rtol=1e-9)
    assert got.sum() == pytest.approx(1, abs=1e-12)
    for i in range(trie.slots):
        tokens = trie.candidates[trie.offsets[i] : trie.offsets[i + 1]]
        assert len(tokens) > 1
        assert (np.diff(tokens) > 0).all()


def test_extreme_log_probabilities_stay_finite() -> None:
    trie = Trie.of(np.array([[1, 1], [1, 2], [2, 1]], dtype=np.int32))
    got = trie.probabilities(np.array([[-1e4, 0.0, -3e4, -2e4]]))
    np.testing.assert_allclose(got, [[0, 0, 1]])


def test_values_with_equal_rows_share() -> None:
    trie = Trie.of(np.array([[5], [5], [7]], dtype=np.int32))
    np.testing.assert_allclose(trie.probabilities(np.log([[0.2, 0.6]])), [[0.125, 0.125, 0.75]])
    same = Trie.of(np.zeros((3, 0), dtype=np.int32))
    np.testing.assert_allclose(same.probabilities(np.zeros((1, 0))), np.full((1, 3), 1 / 3))


def test_255_values_of_40_tokens_are_fast() -> None:
    rows = np.random.default_rng(0).integers(0, 50, (255, 40)).astype(np.int32)
    trie = Trie.of(rows)
    log_probs = np.zeros((1, len(trie.candidates)))
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        trie.probabilities(log_probs)
        spent.append(time.perf_counter() - start)
    assert min(spent) < 0.02
