"""Which pieces of which requests the next pass takes, within a token budget.

Requests are served in order. A state longer than the budget is prefilled in chunks; a request with more blocks than
fit is continued in later passes that reuse its state's keys. A block is never cut: one larger than the budget runs
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from openjev_server.engine.packing import PassItem
from openjev_server.engine.protocol import BlockResult, CanvasBlock, EngineRequest

__all__ = ["Progress", "next_pass"]


@dataclass(slots=True)
class Progress:
    """How far one request has come. `blocks` are the ones with slots, by index; the others need no model."""

    number: int
    request: EngineRequest
    blocks: list[tuple[int, CanvasBlock]]
    state_done: int = 0
    block_next: int = 0
    alone: bool = False
    """Set after a pass failed with this request in it: it runs by itself, so that only the culprit fails."""
    keys: list[Any] = field(default_factory=list)
    """Per layer, keys and values of state tokens [0, state_done)."""
    results: dict[int, BlockResult] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        return self.block_next == len(self.blocks)


def next_pass(waiting: Sequence[Progress], budget: int) -> list[PassItem]:
    """Items of the next pass, never empty while a request waits."""
    items: list[PassItem] = []
    room = budget
    for progress in waiting:
        if items and progress.alone:
            break
        item, used = _item(progress, room, first=not items)
        if item is None:
            break
        items.append(item)
        room -= used
        if progress.alone or progress.block_next + len(item.blocks) < len(progress.blocks):
            break
    return items


def _item(progress: Progress, room: int, *, first: bool) -> tuple[PassItem | None, int]:
    state = progress.request.state
    remaining = len(state) - progress.state_done
    if remaining > room:
        if not first:
            return None, 0
        stop = progress.state_done + max(room, 1)
        return PassItem(progress.number, state, progress.state_done, stop, ()), room
    used = remaining
    blocks: list[tuple[int, CanvasBlock]] = []
    for index, block in progress.blocks[progress.block_next :]:
        size = len(block.suffix) + block.canvases.size
        fits = used + size <= room
        if not fits and (blocks or not first):
            break
        blocks.append((index, block))
        used += size
        if not fits:
            break
    if not blocks and not first:
        return None, 0
    return PassItem(progress.number, state, progress.state_done, len(state), tuple(blocks)), used
