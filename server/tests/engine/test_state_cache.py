"""A state is found by its tokens, to the last one that agrees, and never by anything else."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_server.engine.rows import RowPool
from openjev_server.engine.state_cache import PAGE, StateCache


def state(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1000, length, dtype=np.int32)


def kept(cache: StateCache, pool: RowPool, tokens: np.ndarray) -> np.ndarray:
    rows = pool.take(len(tokens))
    cache.add(tokens, rows)
    pool.release(rows)
    return rows


def test_the_longest_common_beginning_is_found_to_the_token() -> None:
    pool = RowPool(1000)
    cache = StateCache(pool, limit=900)
    tokens = state(100)
    rows = kept(cache, pool, tokens)
    for length in (100, 99, 64, 33):
        asked = np.concatenate([tokens[:length], [1001], state(7, 5)]).astype(np.int32)
        found = cache.find(asked)
        assert found.tolist() == rows[:length].tolist()
        pool.release(found)
    assert len(cache.find(np.concatenate([tokens[: PAGE - 1], [1001], tokens[PAGE:]]).astype(np.int32))) == 0


def test_the_least_recently_used_state_goes_first() -> None:
    pool = RowPool(1000)
    cache = StateCache(pool, limit=300)
    states = [state(100, seed) for seed in range(4)]
    for tokens in states[:3]:
        kept(cache, pool, tokens)
    pool.release(cache.find(states[0]))
    kept(cache, pool, states[3])
    assert [len(cache.find(tokens)) for tokens in states] == [100, 0, 100, 100]


def test_a_state_that_another_one_continues_is_not_kept_twice() -> None:
    pool = RowPool(1000)
    cache = StateCache(pool, limit=900)
    tokens = state(150)
    kept(cache, pool, tokens[:100])
    found = cache.find(tokens)
    rows = np.concatenate([found, pool.take(50)])
    cache.add(tokens, rows)
    pool.release(rows)
    assert len(cache) == 1
    assert pool.free == 850
    cache.clear()
    assert pool.free == 1000


def test_rows_in_use_outlive_their_eviction() -> None:
    pool = RowPool(200)
    cache = StateCache(pool, limit=200)
    rows = kept(cache, pool, state(100))
    found = cache.find(state(100))
    assert cache.evict()
    assert not cache.evict()
    assert pool.free == 100
    assert found.tolist() == rows.tolist()
    pool.release(found)
    assert pool.free == 200


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 130)), min_size=1, max_size=30))
def test_what_is_found_was_put_there_for_these_tokens(asked: list[tuple[int, int]]) -> None:
    """Every row remembers the tokens up to it, as its keys and values would."""
    pool = RowPool(400)
    cache = StateCache(pool, limit=300)
    content: dict[int, bytes] = {}
    families = [np.concatenate([state(40 * (n // 2)), state(130, 50 + n)])[:130] for n in range(4)]
    for family, length in asked:
        tokens = families[family][:length]
        found = cache.find(tokens)
        for position, row in enumerate(found):
            assert content[int(row)] == tokens[: position + 1].tobytes()
        rows = np.concatenate([found, pool.take(length - len(found))])
        for position in range(len(found), length):
            content[int(rows[position])] = tokens[: position + 1].tobytes()
        if len(found) < length:
            cache.add(tokens, rows)
        pool.release(rows)
    cache.clear()
    assert pool.free == 400
