"""Passes cover every token of every request once, within the budget where that is possible, the small ones first."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_server.engine.packing import PackedPass, PassBlock, PassItem, pack
from openjev_server.engine.protocol import EngineRequest
from openjev_server.engine.schedule import Progress, Share, StateWork, next_pass
from openjev_server.engine.tiles import cut
from random_models import random_block, random_request

shapes = st.lists(
    st.tuples(st.integers(1, 60), st.lists(st.integers(0, 20), min_size=1, max_size=5)), min_size=1, max_size=5
)


def build(shape: list[tuple[int, list[int]]]) -> list[Progress]:
    rng = np.random.default_rng(0)
    waiting = []
    for ticket, (state, suffixes) in enumerate(shape):
        blocks = [random_block(rng, suffix=n, width=5, slots=1) for n in suffixes]
        waiting.append(progress_of(ticket, random_request(rng, state=state, blocks=blocks)))
    return waiting


def progress_of(ticket: int, request: EngineRequest, state: StateWork | None = None) -> Progress:
    blocks = [PassBlock(ticket, index, block) for index, block in enumerate(request.blocks)]
    return Progress(ticket, request, state or StateWork(request.state, np.arange(len(request.state))), blocks)


def packed_of(shares: list[Share]) -> PackedPass:
    items = [PassItem(s.state.tokens, s.state.rows[: s.stop], s.state.done, s.stop, s.blocks) for s in shares]
    return pack(items, np.arange(1000, 1000 + sum(block.rows for s in shares for block in s.blocks)))


def take(waiting: list[Progress], shares: list[Share]) -> list[Progress]:
    """What the engine does after a pass."""
    for share in shares:
        share.state.done = share.stop
        for progress in waiting:
            progress.blocks = [block for block in progress.blocks if block not in share.blocks]
    return [progress for progress in waiting if progress.blocks]


@settings(max_examples=200, deadline=None)
@given(shapes, st.integers(1, 100))
def test_every_row_is_computed_once(shape: list[tuple[int, list[int]]], budget: int) -> None:
    waiting = build(shape)
    expected = [(progress.ticket, block.index) for progress in waiting for block in progress.blocks]
    rows = sum(progress.remaining for progress in waiting)
    seen: list[tuple[int, int]] = []
    for _ in range(2000):
        if not waiting:
            break
        shares = next_pass(waiting, budget)
        packed = packed_of(shares)
        assert packed.rows <= budget or (len(shares) == 1 and len(shares[0].blocks) == 1)
        rows -= packed.rows
        seen += [(block.ticket, block.index) for share in shares for block in share.blocks]
        waiting = take(waiting, shares)
    assert not waiting
    assert rows == 0
    assert sorted(seen) == expected


def test_small_requests_run_between_the_chunks_of_a_large_one() -> None:
    rng = np.random.default_rng(1)

    def of(ticket: int, tokens: int) -> Progress:
        block = random_block(rng, suffix=5, width=5, slots=1)
        return progress_of(ticket, random_request(rng, state=tokens, blocks=[block]))

    large = of(0, 1000)
    waiting = [large]
    shares = next_pass(waiting, 100)
    assert [(share.state, share.stop) for share in shares] == [(large.state, 100)]
    waiting = take(waiting, shares)
    small = of(1, 20)
    waiting = [large, small]
    shares = next_pass(waiting, 100)
    assert [(share.state, share.stop, len(share.blocks)) for share in shares] == [
        (small.state, 20, 1),
        (large.state, 125, 0),
    ], "a quarter of the budget at most goes to a large one beside it"


def test_a_small_request_waits_for_one_chunk_and_a_quarter() -> None:
    rng = np.random.default_rng(4)

    def of(ticket: int, tokens: int) -> Progress:
        block = random_block(rng, suffix=5, width=5, slots=1)
        return progress_of(ticket, random_request(rng, state=tokens, blocks=[block]))

    budget, worst = 1000, 0
    for chunks in range(6):
        waiting = [of(0, 3500)]
        for _ in range(chunks):
            rows = sum(share.rows for share in next_pass(waiting, budget))
            waiting[0].state.done += rows
        if waiting[0].remaining <= budget:
            break
        # The small one comes just after the next chunk has begun.
        shares = next_pass(waiting, budget)
        ran = sum(share.rows for share in shares)
        waiting = [*take(waiting, shares), of(1, 80)]
        while any(progress.ticket for progress in waiting):
            shares = next_pass(waiting, budget)
            ran += sum(share.rows for share in shares)
            waiting = take(waiting, shares)
        worst = max(worst, ran)
    assert 1000 < worst <= 1000 + 90 + 250


def test_a_large_request_is_not_starved() -> None:
    rng = np.random.default_rng(2)

    def of(ticket: int, tokens: int) -> Progress:
        block = random_block(rng, suffix=5, width=5, slots=1)
        return progress_of(ticket, random_request(rng, state=tokens, blocks=[block]))

    waiting = [of(0, 500)]
    for number in range(1, 200):
        waiting += [of(2 * number, 90), of(2 * number + 1, 90)]
        waiting = take(waiting, next_pass(waiting, 100))
        if all(progress.ticket for progress in waiting):
            break
    assert number < 20, "it waits for no more rows of others than it has itself"


def test_requests_about_one_state_go_together() -> None:
    rng = np.random.default_rng(3)
    request = random_request(rng, state=40, blocks=[random_block(rng, suffix=5, width=5, slots=1)])
    first = progress_of(0, request)
    second = progress_of(1, request, first.state)
    (share,) = next_pass([first, second], 100)
    assert [block.ticket for block in share.blocks] == [0, 1]
    assert packed_of([share]).rows == 60


def test_a_request_that_failed_in_company_runs_by_itself() -> None:
    waiting = build([(10, [1]), (10, [2]), (10, [3])])
    waiting[0].alone = True
    (share,) = next_pass(waiting, 1000)
    assert [block.ticket for block in share.blocks] == [0]
    waiting = build([(10, [1]), (10, [2]), (10, [3])])
    waiting[2].alone = True
    shares = next_pass(waiting, 1000)
    assert [block.ticket for share in shares for block in share.blocks] == [0, 1]


@settings(max_examples=100, deadline=None)
@given(shapes, st.sampled_from([None, 7]))
def test_tiles_cover_every_row_once_and_every_query_sees_itself(
    shape: list[tuple[int, list[int]]], window: int | None
) -> None:
    waiting = build(shape)
    for number, progress in enumerate(waiting):
        progress.state.rows = progress.state.rows + 2000 + 100 * number
    packed = packed_of(next_pass(waiting, 100_000))
    tiles = cut(packed, window, blocks=packed.blocks, wanted=np.ones(packed.rows, bool))
    rows = np.concatenate([tile.queries for tile in tiles])
    assert sorted(rows) == list(range(packed.rows))
    for tile in tiles:
        own = tile.keys[None, :] == packed.store[tile.queries][:, None]
        assert (own & tile.mask).any(1).all()
