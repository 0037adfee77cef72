"""Which expert each row goes to, and each expert's rows side by side; nothing returns to the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

__all__ = ["Routing", "route"]


@dataclass(frozen=True, slots=True)
class Routing:
    """Entry i stands for row i // k and its (i % k)-th choice."""

    shares: torch.Tensor
    """float32 [n * k]: a row's shares sum to 1 before the per-expert scale."""
    entries: torch.Tensor
    """int32 [n * k]: entries grouped by expert."""
    counts: torch.Tensor
    """int32 [experts]: how many entries each expert has."""


def route(scores: torch.Tensor, expert_scale: torch.Tensor, k: int) -> Routing:
    """Router scores [n, experts] -> top k by softmax, renormalised, times the per-expert scale.

    `counts` must be a power of two wide (128 in the released model).
    """
    n, experts = scores.shape
    shares = torch.empty(n * k, dtype=torch.float32, device=scores.device)
    chosen = torch.empty(n * k, dtype=torch.int32, device=scores.device)
    rank = torch.empty(n * k, dtype=torch.int32, device=scores.device)
    entries = torch.empty(n * k, dtype=torch.int32, device=scores.device)
    counts = torch.zeros(experts, dtype=torch.int32, device=scores.device)
    _choose[(n,)](
        scores, expert_scale, shares, chosen, rank, counts,
        K=k, BLOCK=triton.next_power_of_2(k), EXPERTS=experts, num_warps=1,
    )  # fmt: skip
    block = 256
    _place[(triton.cdiv(n * k, block),)](
        chosen, rank, counts, entries, n * k, EXPERTS=experts, BLOCK=block, num_warps=4
    )
    return Routing(shares, entries, counts)


@triton.jit
def _choose(scores, scales, shares, chosen, rank, counts, K: tl.constexpr, BLOCK: tl.constexpr, EXPERTS: tl.constexpr):
    row = tl.program_id(0)
    expert = tl.arange(0, EXPERTS)
    score = tl.load(scores + row * EXPERTS + expert).to(tl.float32)
    left = tl.exp(score - tl.max(score, 0))
    choice = tl.arange(0, BLOCK)
    weights = tl.zeros([BLOCK], tl.float32)
    picks = tl.zeros([BLOCK], tl.int32)
    for number in tl.static_range(K):
        most, best = tl.max(left, 0, return_indices=True)
        weights = tl.where(choice == number, most, weights)
        picks = tl.where(choice == number, best, picks)
        left = tl.where(expert == best, -1.0, left)
    inside = choice < K
    share = weights / tl.sum(weights, 0) * tl.load(scales + picks, mask=inside, other=0.0)
    tl.store(shares + row * K + choice, share, mask=inside)
    tl.store(chosen + row * K + choice, picks, mask=inside)
    # The order within an expert is whatever the atomics give: every row is computed for itself.
    tl.store(rank + row * K + choice, tl.atomic_add(counts + picks, 1, mask=inside), mask=inside)


@triton.jit
def _place(chosen, rank, counts, entries, total, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < total
    count = tl.load(counts + tl.arange(0, EXPERTS))
    start = tl.cumsum(count, 0) - count
    expert = tl.load(chosen + entry, mask=inside, other=0)
    offset = tl.sum(tl.where(expert[:, None] == tl.arange(0, EXPERTS)[None, :], start[None, :], 0), 1)
    tl.store(entries + offset + tl.load(rank + entry, mask=inside, other=0), entry, mask=inside)
