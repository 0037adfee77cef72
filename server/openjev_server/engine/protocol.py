"""What the front and an engine say to each other: plain arrays, no torch, no text.

An `EngineRequest` is one request's packed content; an `EngineResult` holds, for every canvas block, the
log-probabilities of the candidate tokens at its slots. Vocabulary rows never cross this boundary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BlockResult",
    "CanvasBlock",
    "Engine",
    "EngineError",
    "EngineInfo",
    "EngineRequest",
    "EngineResult",
    "Float32",
    "Int32",
    "NonFiniteLogits",
    "Redraw",
    "SelfConditioning",
]

Int32 = NDArray[np.int32]
Float32 = NDArray[np.float32]


class EngineError(RuntimeError):
    """One request could not be evaluated; the others of its batch could."""


class NonFiniteLogits(EngineError):
    """The model produced NaN or infinite logits at a slot: the answer would be noise, so there is none."""


class SelfConditioning(StrEnum):
    """What a canvas row is conditioned on from the second step on.

    A slot is conditioned on the expected embedding of its previous distribution. A frozen position is conditioned on
    its own token's embedding, as in transformers when its logits are masked to that token; or on nothing.
    """

    FULL = "full"
    """Slots over the whole vocabulary; frozen positions on their token."""
    ALLOWED = "allowed"
    """Slots over their candidates only; frozen positions on their token."""
    SLOTS = "slots"
    """Slots over the whole vocabulary; frozen positions on nothing (how the embedded checkpoint was trained)."""


@dataclass(frozen=True, slots=True, eq=False)
class Redraw:
    """Slot tokens that change between steps, as under transformers' entropy-bound sampler.

    Of a canvas's slots, the ones that the last step was surest of take a token sampled from their candidates; the
    others take fresh noise. What is random comes with the request, so that an engine draws nothing itself.
    """

    entropy_bound: float
    """Slots are taken in the order of their entropy while those before them sum to at most this many nats."""
    uniforms: Float32
    """In [0, 1), what a taken slot is sampled with; shape [steps - 1, replicas, S]."""
    tokens: Int32
    """Token ids, what the other slots become; shape [steps - 1, replicas, S]."""


@dataclass(frozen=True, slots=True)
class CanvasBlock:
    """One question suffix and the canvas that answers it.

    The suffix is read causally after the state; the canvas is read bidirectionally after state and suffix.
    Positions of every block restart right after the state, and canvas positions follow the suffix.
    """

    suffix: Int32
    """Token ids of the question text, shape [Q]; Q may be 0."""
    canvases: Int32
    """Token ids, shape [replicas, C]: frozen structure, and noise at the slots."""
    slots: Int32
    """Canvas positions that are read, ascending, shape [S]; S may be 0 (only one possible answer)."""
    candidates: Int32
    """Candidate token ids of all slots, one slot after the other, shape [K]; ascending within a slot."""
    offsets: Int32
    """`candidates[offsets[i]:offsets[i + 1]]` belong to slot i; shape [S + 1]."""
    redraw: Redraw | None = None
    """None keeps the slots' tokens through all steps."""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request: a state shared by canvas blocks that do not see each other."""

    state: Int32
    """Token ids of the prefix every block reads, shape [T], T >= 1."""
    blocks: tuple[CanvasBlock, ...]
    steps: int
    """Denoising steps, >= 1. Step 1 has no self-conditioning."""
    self_conditioning: SelfConditioning = SelfConditioning.FULL
    temperatures: tuple[float, ...] = ()
    """Per step that another follows, what a slot's logits are divided by before they condition or redraw it; a step
    beyond the last of them has 1. What is read out is never divided."""

    @property
    def tokens(self) -> int:
        """Rows of the first packed pass: state, suffixes and every canvas replica."""
        return len(self.state) + sum(len(b.suffix) + b.canvases.size for b in self.blocks)


@dataclass(frozen=True, slots=True)
class BlockResult:
    """What one canvas block's slots said, step by step."""

    log_probs: Float32
    """Log-probability of each candidate over the WHOLE vocabulary, shape [steps, replicas, K]."""
    logsumexp: Float32
    """Log of the sum of exp(logit) over the whole vocabulary, shape [steps, replicas, S]."""


@dataclass(frozen=True, slots=True)
class EngineResult:
    blocks: tuple[BlockResult, ...]
    queue_ms: float = 0.0
    """Milliseconds between submission and the start of the pass that answered."""
    model_ms: float = 0.0
    """Milliseconds inside the engine."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an answer's fingerprint and the doctor need to know about an engine."""

    weights_hash: str
    """First 12 hex digits of a hash over the weight files."""
    dtype: str
    """`float32` or `bfloat16`; `float8`, `int8` or `int4` when attention, dense MLP and experts are held so."""
    device: str
    """`cpu`, `cuda:0`, ..."""
    vocab_size: int
    max_positions: int


class Engine(ABC):
    """Evaluates requests pass by pass, packing what was begun. Not thread safe: one thread calls it."""

    @property
    @abstractmethod
    def info(self) -> EngineInfo: ...

    @abstractmethod
    def begin(self, request: EngineRequest) -> int:
        """Takes a request in; returns the ticket under which `advance` will report it."""

    @abstractmethod
    def advance(self) -> dict[int, EngineResult | EngineError]:
        """Runs one pass over some of what was begun; returns what is finished, by ticket. A request fails alone."""

    @abstractmethod
    def abandon(self, ticket: int) -> None:
        """Forgets a request that nobody waits for any more; a ticket that is finished or unknown is ignored."""

    @abstractmethod
    def warm_up(self) -> None:
        """Runs the shapes that a first request would otherwise pay for."""

    @abstractmethod
    def close(self) -> None: ...

    def run(self, requests: Sequence[EngineRequest]) -> list[EngineResult | EngineError]:
        """Evaluates the requests together: one entry each, in order."""
        tickets = [self.begin(request) for request in requests]
        outcomes: dict[int, EngineResult | EngineError] = {}
        while not outcomes.keys() >= set(tickets):
            outcomes |= self.advance()
        return [outcomes[ticket] for ticket in tickets]
