"""Passes cover every token of every request once, in order, within the budget where that is possible."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_server.engine.packing import pack
from openjev_server.engine.protocol import EngineRequest
from openjev_server.engine.schedule import Progress, next_pass
from openjev_server.engine.tiles import cut
from random_models import random_block, random_request

shapes = st.lists(st.tuples(st.integers(1, 60), st.lists(st.integers(0, 20), max_size=5)), min_size=1, max_size=5)


def build(shape: list[tuple[int, list[int]]]) -> list[EngineRequest]:
    rng = np.random.default_rng(0)
    return [
        random_request(rng, state=state, blocks=[random_block(rng, suffix=n, width=5, slots=1) for n in suffixes])
        for state, suffixes in shape
    ]


@settings(max_examples=200, deadline=None)
@given(shapes, st.integers(1, 100))
def test_every_row_is_computed_once(shape: list[tuple[int, list[int]]], budget: int) -> None:
    waiting = [Progress(n, request, list(enumerate(request.blocks))) for n, request in enumerate(build(shape))]
    waiting = [progress for progress in waiting if not progress.finished]
    states = {progress.number: 0 for progress in waiting}
    seen: dict[int, list[int]] = {progress.number: [] for progress in waiting}
    everyone = {progress.number: progress for progress in waiting}
    for _ in range(1000):
        if not waiting:
            break
        items = next_pass(waiting, budget)
        packed = pack(items)
        assert packed.rows <= budget or len(items) == 1
        for item in items:
            assert item.start == states[item.request]
            states[item.request] = everyone[item.request].state_done = item.stop
            seen[item.request] += [index for index, _ in item.blocks]
            everyone[item.request].block_next += len(item.blocks)
        waiting = [progress for progress in waiting if not progress.finished]
    assert not waiting
    for number, progress in everyone.items():
        assert states[number] == len(progress.request.state)
        assert seen[number] == list(range(len(progress.request.blocks)))


@settings(max_examples=100, deadline=None)
@given(shapes, st.sampled_from([None, 7]))
def test_tiles_cover_every_row_once_and_every_query_sees_itself(
    shape: list[tuple[int, list[int]]], window: int | None
) -> None:
    waiting = [Progress(n, request, list(enumerate(request.blocks))) for n, request in enumerate(build(shape))]
    packed = pack(next_pass(waiting, 100_000))
    tiles = cut(packed, window, blocks=packed.blocks, wanted=np.ones(packed.rows, bool))
    rows = np.concatenate([tile.queries for tile in tiles])
    assert sorted(rows) == list(range(packed.rows))
    for tile in tiles:
        own = tile.keys[None, :] == tile.queries[:, None] + packed.prefix_rows
        assert (own & tile.mask).any(1).all()
