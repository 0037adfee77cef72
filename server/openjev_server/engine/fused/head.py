"""Logits of slot rows without float32 copies of the vocabulary: capped, summed and turned to probabilities in place.

Logits are capped at +-30 before the softmax, so exp needs no maximum subtracted: 262,144 * e^30 fits float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["log_sum_exp", "to_probabilities"]

BLOCK = 4096
LARGEST_CAP = 60.0
"""e^60 * 2^18 is still below float32's largest value (3.4e38)."""


def log_sum_exp(raw: torch.Tensor, cap: float) -> torch.Tensor:
    """Log of the sum of exp of the capped logits of [m, vocab] -> float32 [m]; NaN where a raw logit is not finite.

    Raises ValueError for a cap that the sum could overflow at.
    """
    if cap > LARGEST_CAP:
        raise ValueError(f"a logit cap of {cap} would overflow")
    m, vocab = raw.shape
    blocks = triton.cdiv(vocab, BLOCK)
    sums = torch.empty(m, blocks, dtype=torch.float32, device=raw.device)
    _sum_exp[(m, blocks)](raw, sums, cap, vocab, BLOCKS=blocks, BLOCK=BLOCK, num_warps=8)
    return sums.sum(-1).log()


def to_probabilities(raw: torch.Tensor, log_sums: torch.Tensor, cap: float) -> None:
    """Overwrites raw logits [m, vocab] with their probabilities, in their own dtype."""
    m, vocab = raw.shape
    _normalise[(m, triton.cdiv(vocab, BLOCK))](raw, log_sums, cap, vocab, BLOCK=BLOCK, num_warps=8)


@triton.jit
def _capped(x, cap):
    # tanh(u) = 1 - 2 / (exp(2u) + 1); an infinite input would come out as +-cap, so it is made NaN first.
    x = tl.where((x == float("inf")) | (x == -float("inf")), float("nan"), x)
    return cap * (1.0 - 2.0 / (tl.exp(2.0 * x / cap) + 1.0))


@triton.jit
def _sum_exp(raw, sums, cap, vocab, BLOCKS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocab
    x = tl.load(raw + row * vocab + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(sums + row * BLOCKS + tl.program_id(1), tl.sum(tl.where(inside, tl.exp(_capped(x, cap)), 0.0), 0))


@triton.jit
def _normalise(raw, log_sums, cap, vocab, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < vocab
    at = raw + row * vocab + column
    x = tl.load(at, mask=inside, other=0.0).to(tl.float32)
    tl.store(at, tl.exp(_capped(x, cap) - tl.load(log_sums + row)).to(raw.dtype.element_ty), mask=inside)
