"""The engine: keeps what was begun, runs pass after pass over it, and lets a request fail alone."""

from __future__ import annotations

import itertools
import logging
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch

from openjev_server.engine.backend import Backend
from openjev_server.engine.denoise import BlockPlan, denoise
from openjev_server.engine.packing import PassBlock, PassItem, pack
from openjev_server.engine.protocol import (
    BlockResult,
    CanvasBlock,
    Engine,
    EngineError,
    EngineInfo,
    EngineRequest,
    EngineResult,
    NonFiniteLogits,
)
from openjev_server.engine.rows import PoolFull, RowPool, Rows
from openjev_server.engine.schedule import Progress, Share, StateWork, next_pass
from openjev_server.engine.state_cache import StateCache

__all__ = ["TorchEngine"]

logger = logging.getLogger(__name__)

SMALLEST_BUDGET = 256
"""Tokens; below this, halving the budget after running out of memory no longer helps."""


class TorchEngine(Engine):
    """Owns the model and its key pool. Not thread safe.

    Args:
        backend: the model.
        info: what the engine says about itself.
        token_budget: rows of one pass.
        cache_rows: rows of the key pool that states may occupy after their requests, beyond what requests need.
        request_rows: rows that the longest request needs at once: its state and one block.
    """

    def __init__(
        self, backend: Backend, info: EngineInfo, *, token_budget: int, cache_rows: int = 0, request_rows: int = 0
    ) -> None:
        self._backend = backend
        self._info = info
        self._budget = token_budget
        self._pool = RowPool(max(request_rows, token_budget) + 2 * token_budget + cache_rows)
        backend.allocate(self._pool.capacity)
        self._cache = StateCache(self._pool, limit=cache_rows)
        self._tickets = itertools.count()
        self._waiting: dict[int, Progress] = {}
        self._states: dict[bytes, StateWork] = {}
        self._refused: dict[int, EngineError] = {}

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def cached_states(self) -> int:
        """How many states the cache holds."""
        return len(self._cache)

    def forget_states(self) -> None:
        """Empties the state cache (for measurements of a cold one)."""
        self._cache.clear()

    def close(self) -> None:
        """Nothing to release beyond the memory that goes with this object."""

    def warm_up(self) -> None:
        """Compiles what the backend compiles, then evaluates a small request: a first step, and one that continues."""
        with self._on_its_device():
            self._backend.warm_up(self._budget)
        tokens = np.arange(1, 9, dtype=np.int32) % self._info.vocab_size
        one = np.zeros(1, np.int32)
        block = CanvasBlock(tokens, tokens[None], one, tokens[:1], np.array([0, 1], np.int32))
        for result in self.run([EngineRequest(tokens, (block, block), steps=2)]):
            if isinstance(result, EngineError):
                raise result

    def begin(self, request: EngineRequest) -> int:
        ticket = next(self._tickets)
        fault = self._fault(request)
        if fault is not None:
            self._refused[ticket] = EngineError(fault)
            return ticket
        blocks = [PassBlock(ticket, index, block) for index, block in enumerate(request.blocks) if len(block.slots)]
        key = request.state.tobytes()
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = StateWork(request.state)
        state.users += 1
        self._waiting[ticket] = Progress(ticket, request, state, blocks)
        return ticket

    def abandon(self, ticket: int) -> None:
        self._refused.pop(ticket, None)
        progress = self._waiting.pop(ticket, None)
        if progress is not None:
            self._leave(progress)

    @torch.inference_mode()
    def advance(self) -> dict[int, EngineResult | EngineError]:
        outcomes: dict[int, EngineResult | EngineError] = dict(self._refused)
        self._refused.clear()
        if any(progress.blocks for progress in self._waiting.values()):
            with self._on_its_device():
                outcomes |= self._pass()
        for progress in [progress for progress in self._waiting.values() if not progress.blocks]:
            outcomes[progress.ticket] = _collect(progress)
            self.abandon(progress.ticket)
        return outcomes

    def _on_its_device(self) -> AbstractContextManager[object]:
        """Kernels are launched on the calling thread's current GPU, wherever their tensors are."""
        device = self._backend.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    def _pass(self) -> dict[int, EngineResult | EngineError]:
        for progress in self._waiting.values():
            self._look_up(progress.state)
        waiting = [progress for progress in self._waiting.values() if progress.blocks]
        shares, block_rows = self._place(next_pass(waiting, self._budget))
        taking_part = self._taking_part(shares)
        failure: Exception | None = None
        out_of_memory = False
        results: dict[PassBlock, BlockResult] = {}
        try:
            results = self._evaluate(shares, block_rows)
        except torch.OutOfMemoryError:
            out_of_memory = True
        except Exception as error:  # whatever a kernel raises belongs to the requests of this pass alone
            failure = error.with_traceback(None)
        self._pool.release(block_rows)
        # Out of the except block: its traceback would pin the tensors that must be freed first.
        if out_of_memory and self._budget > SMALLEST_BUDGET:
            torch.cuda.empty_cache()
            self._budget = max(self._budget // 2, SMALLEST_BUDGET)
            logger.warning("out of memory; passes are limited to %d tokens from now on", self._budget)
            return {}
        if out_of_memory:
            failure = EngineError("out of memory for this request alone")
        if failure is not None:
            return self._fail(failure, list(taking_part.values()))
        for share in shares:
            self._complete(share)
        for source, result in results.items():
            taking_part[source.ticket].results[source.index] = result
        for share in shares:
            for source in share.blocks:
                taking_part[source.ticket].blocks.remove(source)
        return {}

    def _taking_part(self, shares: list[Share]) -> dict[int, Progress]:
        """Whose failure a failure of the pass may be: the blocks' requests, and for a mere chunk its first reader."""
        tickets = {block.ticket for share in shares for block in share.blocks}
        for share in shares:
            if not share.blocks:
                tickets.add(next(p.ticket for p in self._waiting.values() if p.state is share.state and p.blocks))
        return {ticket: self._waiting[ticket] for ticket in sorted(tickets)}

    def _fail(self, failure: Exception, taking_part: list[Progress]) -> dict[int, EngineResult | EngineError]:
        """With company, every request of the pass is tried alone; without, the request has failed."""
        if len(taking_part) > 1:
            for progress in taking_part:
                progress.alone = True
            return {}
        (culprit,) = taking_part
        if not isinstance(failure, NonFiniteLogits):
            logger.error("a request failed in the engine: %s", failure)
        self.abandon(culprit.ticket)
        return {culprit.ticket: failure if isinstance(failure, EngineError) else EngineError(str(failure))}

    def _evaluate(self, shares: list[Share], block_rows: Rows) -> dict[PassBlock, BlockResult]:
        items = [
            PassItem(share.state.tokens, share.state.rows[: share.stop], share.state.done, share.stop, share.blocks)
            for share in shares
        ]
        packed = pack(items, block_rows)
        tickets = {block.ticket for share in shares for block in share.blocks}
        plans = {ticket: BlockPlan.of(self._waiting[ticket].request) for ticket in tickets}
        results = denoise(self._backend, packed, [plans[span.source.ticket] for span in packed.blocks])
        kept: dict[PassBlock, BlockResult] = {}
        for span, result in zip(packed.blocks, results, strict=True):
            if isinstance(result, NonFiniteLogits):
                raise result
            kept[span.source] = result
        return kept

    def _look_up(self, state: StateWork) -> None:
        """Takes over what the cache has of a state that has nothing yet."""
        if not len(state.rows):
            state.rows = self._cache.find(state.tokens)
            state.done = len(state.rows)

    def _place(self, shares: list[Share]) -> tuple[list[Share], Rows]:
        """Gives the pass its pool rows, dropping cached states and, after them, shares, until there is room.

        A state keeps its rows between passes, so others' unfinished states can be in the way as well: those start
        again. One state and one block of it always find room: `begin` has refused what the pool cannot hold.
        """
        while True:
            new = [max(0, share.stop - len(share.state.rows)) for share in shares]
            blocks = sum(block.rows for share in shares for block in share.blocks)
            try:
                rows = self._pool.take(sum(new) + blocks)
            except PoolFull:
                if not self._cache.evict():
                    if len(shares) > 1:
                        shares = shares[:-1]
                    elif not self._restart_another(shares[0].state):
                        (share,) = shares
                        if len(share.blocks) < 2:
                            raise
                        shares = [Share(share.state, share.stop, share.blocks[: len(share.blocks) // 2])]
                continue
            for share, count in zip(shares, new, strict=True):
                share.state.rows = np.concatenate([share.state.rows, rows[:count]])
                rows = rows[count:]
            return shares, rows

    def _restart_another(self, kept: StateWork) -> bool:
        for state in reversed(self._states.values()):
            if state is not kept and len(state.rows):
                self._pool.release(state.rows)
                state.rows, state.done = state.rows[:0], 0
                return True
        return False

    def _complete(self, share: Share) -> None:
        state = share.state
        if state.done < share.stop:
            state.done = share.stop
            if state.done == len(state.tokens):
                self._cache.add(state.tokens, state.rows)

    def _leave(self, progress: Progress) -> None:
        state = progress.state
        state.users -= 1
        if not state.users:
            self._pool.release(state.rows)
            del self._states[state.tokens.tobytes()]

    def _fault(self, request: EngineRequest) -> str | None:
        """Why the model cannot take the request, if it cannot."""
        if request.steps < 1 or not len(request.state):
            return "a request needs a state and at least one denoising step"
        longest = largest = 0
        tokens = [request.state]
        for block in request.blocks:
            tokens += (block.suffix, block.canvases.ravel())
            if block.redraw is not None:
                tokens.append(block.redraw.tokens.ravel())
            longest = max(longest, len(block.suffix) + block.canvases.shape[1])
            largest = max(largest, len(block.suffix) + block.canvases.size)
        every = np.concatenate(tokens)
        if int(every.min()) < 0 or int(every.max()) >= self._info.vocab_size:
            return "a token id is outside the vocabulary"
        if len(request.state) + longest > self._info.max_positions:
            return f"the prompt is longer than the model's {self._info.max_positions} positions"
        if len(request.state) + largest > self._pool.capacity:
            return f"the request needs more than the {self._pool.capacity} rows of the key pool"
        return None


def _collect(progress: Progress) -> EngineResult:
    return EngineResult(
        tuple(
            progress.results.get(index) or _nothing(progress.request.steps, len(block.canvases))
            for index, block in enumerate(progress.request.blocks)
        )
    )


def _nothing(steps: int, replicas: int) -> BlockResult:
    """Of a block without slots."""
    empty = np.zeros((steps, replicas, 0), np.float32)
    return BlockResult(empty, empty)
