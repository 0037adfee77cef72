"""An engine without a model, for tests: answers depend on content alone, delays and failures are scripted."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from collections.abc import Callable

import numpy as np

from openjev_server.engine.protocol import (
    BlockResult,
    CanvasBlock,
    Engine,
    EngineError,
    EngineInfo,
    EngineRequest,
    EngineResult,
    Float32,
)

__all__ = ["FAKE_INFO", "FakeEngine", "hashed_logits"]

FAKE_INFO = EngineInfo(
    weights_hash="fa4e00000000", dtype="float32", device="cpu", vocab_size=16_384, max_positions=32_768
)

Answer = Callable[[EngineRequest, CanvasBlock], Float32]
Failure = Callable[[EngineRequest], EngineError | None]


def hashed_logits(request: EngineRequest, block: CanvasBlock) -> Float32:
    """One logit per candidate, shape [K], from a hash of the state and the block."""
    digest = hashlib.sha256(b"".join(a.tobytes() for a in (request.state, block.suffix, block.candidates))).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    return generator.normal(size=len(block.candidates)).astype(np.float32)


class FakeEngine(Engine):
    """Answers everything that was begun in one pass.

    Args:
        info: what the engine says about itself.
        answer: logits of a block's candidates, shape [K]; the rest of the vocabulary gets nothing.
        delay_s: seconds every pass takes.
        failure: an error for a request, or None; raising instead breaks the whole batch.
        gate: when given, a pass waits until it is set.
    """

    def __init__(
        self,
        info: EngineInfo = FAKE_INFO,
        answer: Answer = hashed_logits,
        *,
        delay_s: float = 0.0,
        failure: Failure | None = None,
        gate: threading.Event | None = None,
    ) -> None:
        self._info = info
        self._answer = answer
        self._delay_s = delay_s
        self._failure = failure
        self._gate = gate
        self._begun: dict[int, EngineRequest] = {}
        self._tickets = itertools.count()
        self.batches: list[list[EngineRequest]] = []
        self.entered = threading.Event()
        self.warmed_up = False
        self.closed = False

    @property
    def info(self) -> EngineInfo:
        """What was given, unchanged."""
        return self._info

    def begin(self, request: EngineRequest) -> int:
        """Keeps it for the next pass."""
        ticket = next(self._tickets)
        self._begun[ticket] = request
        return ticket

    def abandon(self, ticket: int) -> None:
        """Drops it if no pass has taken it."""
        self._begun.pop(ticket, None)

    def advance(self) -> dict[int, EngineResult | EngineError]:
        """Records the batch, waits as told, and answers."""
        begun, self._begun = self._begun, {}
        self.batches.append(list(begun.values()))
        self.entered.set()
        if self._gate is not None:
            self._gate.wait()
        if self._delay_s:
            time.sleep(self._delay_s)
        return {ticket: self._one(request) for ticket, request in begun.items()}

    def warm_up(self) -> None:
        """Only remembers that it was called."""
        self.warmed_up = True

    def close(self) -> None:
        """Only remembers that it was called."""
        self.closed = True

    def _one(self, request: EngineRequest) -> EngineResult | EngineError:
        error = self._failure(request) if self._failure else None
        return error or EngineResult(tuple(self._block(request, block) for block in request.blocks))

    def _block(self, request: EngineRequest, block: CanvasBlock) -> BlockResult:
        logits = self._answer(request, block)
        log_probs = np.empty_like(logits)
        logsumexp = np.zeros(len(block.slots), np.float32)
        for slot in range(len(block.slots)):
            part = slice(block.offsets[slot], block.offsets[slot + 1])
            logsumexp[slot] = np.log(np.exp(logits[part]).sum())
            log_probs[part] = logits[part] - logsumexp[slot]
        shape = (request.steps, len(block.canvases))
        return BlockResult(
            log_probs=np.broadcast_to(log_probs, (*shape, len(log_probs))),
            logsumexp=np.broadcast_to(logsumexp, (*shape, len(logsumexp))),
        )
