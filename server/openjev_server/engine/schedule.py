"""Which pieces of which requests the next pass takes, within a token budget.

The least work left goes first, and every row that other requests get while one waits makes it as much more urgent: a
request of R rows waits for no more than R rows of others. A state longer than the room is prefilled in chunks, so that
small requests run between the chunks of a large one; requests about the same state share it. A block is never cut: one
larger than the budget runs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from openjev_server.engine.packing import PassBlock
from openjev_server.engine.protocol import BlockResult, EngineRequest, Int32
from openjev_server.engine.rows import Rows

__all__ = ["Progress", "Share", "StateWork", "next_pass"]

MIXED_SHARE = 4
"""Beside others a request of more than this part (a quarter) of the budget gets that part at most: a small request that
arrives while a large one's chunk runs then waits for what is left of that chunk and a quarter of another. On an H200
passes of 2,000 and of 8,000 rows compute 52 and 59 rows a millisecond, so that the large one loses little."""


@dataclass(slots=True, eq=False)
class StateWork:
    """A state that one or more requests read, and how far it is in the pool."""

    tokens: Int32
    rows: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    """Pool rows of the tokens that have one: at least [done]."""
    done: int = 0
    """Tokens whose keys and values are in the pool."""
    users: int = 0


@dataclass(slots=True, eq=False)
class Progress:
    """How far one request has come."""

    ticket: int
    request: EngineRequest
    state: StateWork
    blocks: list[PassBlock]
    """The blocks with slots that no pass has taken yet; the others need no model."""
    alone: bool = False
    """Set after a pass failed with this request in it: it runs by itself, so that only the culprit fails."""
    waited: int = 0
    """Rows of others that ran since it was begun, in passes without it."""
    results: dict[int, BlockResult] = field(default_factory=dict)

    @property
    def remaining(self) -> int:
        """Rows still to run."""
        return len(self.state.tokens) - self.state.done + sum(block.rows for block in self.blocks)


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """A state's share of the next pass: its tokens up to `stop`, and blocks of the requests that read it."""

    state: StateWork
    stop: int
    blocks: tuple[PassBlock, ...]

    @property
    def rows(self) -> int:
        return self.stop - self.state.done + sum(block.rows for block in self.blocks)


def next_pass(waiting: Sequence[Progress], budget: int) -> list[Share]:
    """Shares of the next pass, at most one a state and never empty while a request waits; ages the others."""
    order = sorted(waiting, key=lambda progress: (progress.remaining - progress.waited, progress.ticket))
    if order and order[0].alone:
        order = order[:1]
    shares: dict[int, Share] = {}
    taken: set[int] = set()
    room = budget
    for progress in order:
        if progress.alone and shares:
            continue
        share = _share(progress, shares.get(id(progress.state)), room, budget, first=not shares)
        if share is None:
            continue
        previous = shares.get(id(progress.state))
        room -= share.rows - (previous.rows if previous else 0)
        shares[id(progress.state)] = share
        taken.add(progress.ticket)
    rows = sum(share.rows for share in shares.values())
    for progress in waiting:
        if progress.ticket not in taken:
            progress.waited += rows
    return list(shares.values())


def _share(progress: Progress, given: Share | None, room: int, budget: int, *, first: bool) -> Share | None:
    """The state's share with what fits of this request added; None when nothing does."""
    state = progress.state
    length = len(state.tokens)
    left = length - (given.stop if given else state.done)
    beside = min(room, budget // MIXED_SHARE)
    if not first and left + sum(block.rows for block in progress.blocks) > beside:
        room = beside
    if left > room or (given is not None and left):
        return Share(state, state.done + room, ()) if given is None and room > 0 else None
    room -= left
    blocks = list(given.blocks) if given else []
    before = len(blocks)
    for block in progress.blocks:
        # The first block of a pass runs however large it is.
        if block.rows > room and not (first and len(blocks) == before):
            break
        blocks.append(block)
        room -= block.rows
    if len(blocks) == before and (given is not None or not left):
        return None
    return Share(state, length, tuple(blocks))
