"""Routing: stable, balanced, and good for the engines' caches."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.engine.protocol import Int32
from openjev_server.fleet.routing import LOAD_FACTOR, Ancestry, choose, preference, prefix_lengths

KEYS = st.binary(min_size=8, max_size=8)
FLEETS = st.lists(st.integers(0, 63), min_size=1, max_size=8, unique=True)
PASS = 8192


def state_of(seed: int, tokens: int) -> Int32:
    return np.random.default_rng(seed).integers(0, 16_000, tokens).astype(np.int32)


@given(KEYS, FLEETS)
def test_preference_depends_on_key_and_engines_alone(key: bytes, engines: list[int]) -> None:
    assert preference(key, engines) == preference(key, engines[::-1])
    assert sorted(preference(key, engines)) == sorted(engines)


@given(st.lists(KEYS, max_size=30), FLEETS, st.integers(0, 63))
def test_an_engine_that_goes_moves_its_own_keys_only(keys: list[bytes], engines: list[int], gone: int) -> None:
    remaining = [engine for engine in engines if engine != gone]
    for key in keys:
        order = preference(key, engines)
        assert preference(key, remaining) == [engine for engine in order if engine != gone]


def test_keys_are_spread_evenly() -> None:
    homes = Counter(preference(key.to_bytes(8, "big"), [0, 1, 2, 3])[0] for key in range(4000))
    assert all(abs(homes[engine] - 1000) < 120 for engine in range(4))


@given(KEYS, st.integers(1, 40_000), st.dictionaries(st.integers(0, 9), st.integers(0, 200_000), min_size=1))
def test_nobody_gets_much_more_than_the_average(key: bytes, tokens: int, loads: dict[int, int]) -> None:
    chosen = choose(key, tokens, loads, slack=PASS)
    total = loads[chosen] + tokens
    bound = max(PASS, LOAD_FACTOR * (sum(loads.values()) + tokens) / len(loads))
    assert not loads[chosen] or total <= bound or loads[chosen] == min(loads.values())


@given(KEYS, st.lists(st.integers(0, PASS // 2), min_size=1, max_size=8))
def test_engines_with_little_to_do_keep_their_keys(key: bytes, loads: list[int]) -> None:
    outstanding = dict(enumerate(loads))
    assert choose(key, PASS // 2, outstanding, slack=PASS) == preference(key, list(outstanding))[0]


@given(st.integers(1, 40_000))
def test_prefix_lengths(tokens: int) -> None:
    lengths = prefix_lengths(tokens)
    assert lengths[-1] == tokens
    assert all(a < b <= 1.42 * a + 2 or b == tokens for a, b in pairwise(lengths))


def test_a_growing_transcript_keeps_its_origin() -> None:
    ancestry = Ancestry()
    transcript = state_of(1, 4000)
    origin = ancestry.origin(transcript[:500])
    assert [ancestry.origin(transcript[:length]) for length in range(650, 4000, 150)] == [origin] * 23
    assert ancestry.origin(transcript[:500]) == origin


def test_a_short_common_beginning_does_not_relate_states() -> None:
    ancestry = Ancestry()
    preamble = state_of(0, 200)
    origins = {ancestry.origin(np.concatenate([preamble, state_of(seed, 500)])) for seed in range(1, 30)}
    assert len(origins) == 29


def test_states_have_keys_of_their_own_however_short() -> None:
    ancestry = Ancestry()
    states = [state_of(100 * seed + tokens, tokens) for seed in range(20) for tokens in (2, 3, 63, 64, 65)]
    assert len({ancestry.origin(state) for state in states}) == len({state.tobytes() for state in states})


def test_memory_is_bounded() -> None:
    ancestry = Ancestry(remembered=100)
    for seed in range(50):
        ancestry.origin(state_of(seed, 1000))
    assert len(ancestry._origins) == 100


class Cache:
    """What an engine keeps: whole states, up to so many tokens, the latest used."""

    def __init__(self, tokens: int) -> None:
        self._capacity = tokens
        self._states: OrderedDict[bytes, int] = OrderedDict()

    def reused(self, state: Int32) -> int:
        """Tokens that need not be computed; the state is kept from now on."""
        data = state.tobytes()
        held = [key for key in self._states if data.startswith(key)]
        longest = max(held, key=len, default=b"")
        if longest:
            self._states.move_to_end(longest)
        self._states[data] = len(state)
        self._states.move_to_end(data)
        while sum(self._states.values()) > self._capacity:
            self._states.popitem(last=False)
        return len(longest) // state.itemsize


def stream(seed: int, requests: int) -> Iterator[Int32]:
    """Documents asked about again and again, some far more often than others, and transcripts that grow."""
    random = np.random.default_rng(seed)
    documents = [state_of(1000 * seed + i, int(random.lognormal(6.5, 0.8)) + 20) for i in range(300)]
    popularity = 1 / np.arange(1, len(documents) + 1) ** random.uniform(0.7, 1.2)
    popularity /= popularity.sum()
    transcripts = [state_of(1000 * seed + 500 + i, 6000) for i in range(30)]
    lengths = random.integers(100, 600, len(transcripts))
    for _ in range(requests):
        if random.random() < 0.4:
            which = random.integers(len(transcripts))
            lengths[which] += random.integers(20, 250)
            if lengths[which] > len(transcripts[which]):
                lengths[which] = random.integers(100, 600)
            yield transcripts[which][: lengths[which]]
        else:
            yield documents[random.choice(len(documents), p=popularity)]


def hit_rate(engines: int, seed: int, *, utilisation: float, capacity: int, gone: range = range(0)) -> float:
    """Share of the state tokens that the caches of so many engines save.

    Each engine computes a thousand tokens a tick; `utilisation` of what all of them can compute arrives. Engine 0 is
    away while the number of the request is in `gone`, and comes back with an empty cache.
    """
    ancestry = Ancestry()
    caches = {engine: Cache(capacity) for engine in range(engines)}
    work: dict[int, list[int]] = {engine: [] for engine in range(engines)}
    random = np.random.default_rng(seed)
    saved = total = 0
    arriving = 0.0
    for number, state in enumerate(stream(seed, 600)):
        while arriving < len(state):
            arriving += 1000 * engines * utilisation * random.exponential()
            for queue in work.values():
                left = 1000
                while queue and left:
                    done = min(left, queue[0])
                    left -= done
                    queue[0] -= done
                    if not queue[0]:
                        queue.pop(0)
        arriving -= len(state)
        if number in gone:
            caches[0], work[0] = Cache(capacity), []
        there = [engine for engine in work if engine or number not in gone]
        loads = {engine: sum(work[engine]) for engine in there}
        engine = choose(ancestry.origin(state), len(state), loads, slack=PASS)
        reused = caches[engine].reused(state)
        saved += reused
        total += len(state)
        work[engine].append(max(1, len(state) - reused))
    return saved / total


@pytest.mark.parametrize("utilisation", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_two_engines_hit_their_caches_nearly_as_often_as_one(seed: int, utilisation: float) -> None:
    """Even though each has only half of the one engine's memory."""
    one = hit_rate(1, seed, utilisation=utilisation, capacity=60_000)
    two = hit_rate(2, seed, utilisation=utilisation, capacity=30_000)
    assert one > 0.3
    assert two >= 0.9 * one


def test_an_engine_that_was_away_costs_its_own_cache_only() -> None:
    always = hit_rate(2, 0, utilisation=1, capacity=60_000)
    away = hit_rate(2, 0, utilisation=1, capacity=60_000, gone=range(200, 300))
    assert away >= 0.75 * always


if __name__ == "__main__":
    for load in (0.3, 1.0, 3.0):
        for seed in range(6):
            one = hit_rate(1, seed, utilisation=load, capacity=60_000)
            rates = [hit_rate(2, seed, utilisation=load, capacity=capacity) for capacity in (30_000, 60_000)]
            print(load, seed, f"{one:.3f}", *(f"{rate:.3f} ({rate / one:.3f})" for rate in rates))
