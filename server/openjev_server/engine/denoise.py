"""The denoising loop of one packed pass: step 1 is fused with the prefill, later steps rerun canvas rows only.

Between steps a slot is conditioned on what the previous step said, a frozen position on its own token or on nothing,
as the request's `SelfConditioning` says. Nothing returns to the host before the last step, unless slots are redrawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from openjev_server.engine.backend import Backend, Conditioning, Head
from openjev_server.engine.packing import BlockSpan, PackedPass
from openjev_server.engine.protocol import (
    BlockResult,
    CanvasBlock,
    EngineRequest,
    Float32,
    NonFiniteLogits,
    SelfConditioning,
)
from openjev_server.engine.redraw import redrawn

__all__ = ["BlockPlan", "denoise"]


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How a block of the pass is denoised."""

    steps: int
    self_conditioning: SelfConditioning
    temperatures: tuple[float, ...] = ()

    @staticmethod
    def of(request: EngineRequest) -> BlockPlan:
        return BlockPlan(request.steps, request.self_conditioning, request.temperatures)

    def temperature(self, step: int) -> float:
        """What the slots' logits of this step, from 1, are divided by before they condition or redraw the next."""
        return self.temperatures[step - 1] if step <= len(self.temperatures) else 1.0


def denoise(backend: Backend, packed: PackedPass, plans: Sequence[BlockPlan]) -> list[BlockResult | NonFiniteLogits]:
    """One result per block of the pass."""
    steps: list[_Step] = []
    conditioning: Conditioning | None = None
    for step in range(1, max((plan.steps for plan in plans), default=1) + 1):
        active = [number for number, plan in enumerate(plans) if plan.steps >= step]
        blocks = [packed.blocks[number] for number in active]
        hidden = backend.run(packed, blocks, conditioning)
        continuing = [plans[number] if plans[number].steps > step else None for number in active]
        if blocks:
            temperatures = [plan.temperature(step) if plan is not None else 1.0 for plan in continuing]
            reading, conditioning = _read(backend, blocks, continuing, temperatures, hidden)
            steps.append(_Step(active, reading))
            packed = _redraw(packed, blocks, continuing, reading, step)
    return _results(packed.blocks, steps)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the slots of a step's blocks say, still on the device."""

    log_probs: torch.Tensor
    """Candidate log-probabilities, block by block, replica by replica."""
    log_sums: torch.Tensor
    """One per slot row."""
    candidates: list[int]
    """How many of `log_probs` belong to each block."""
    slots: list[int]
    """How many of `log_sums` do."""


@dataclass(frozen=True, slots=True)
class _Step:
    blocks: list[int]
    reading: _Reading


def _redraw(
    packed: PackedPass,
    blocks: Sequence[BlockSpan],
    continuing: Sequence[BlockPlan | None],
    reading: _Reading,
    step: int,
) -> PackedPass:
    """The pass with new tokens at the slots of the blocks that redraw them."""
    if not any(plan and span.block.redraw for span, plan in zip(blocks, continuing, strict=True)):
        return packed
    tokens = packed.tokens.copy()
    log_probs = reading.log_probs.float().cpu().numpy()
    for span, plan, mine in zip(blocks, continuing, _split(log_probs, reading.candidates), strict=True):
        if plan is None or span.block.redraw is None:
            continue
        replicas = span.block.canvases.shape[0]
        drawn = redrawn(span.block, mine.reshape(replicas, -1), step=step, temperature=plan.temperature(step))
        tokens[span.slot_rows] = drawn.reshape(-1)
    return replace(packed, tokens=tokens)


def _read(
    backend: Backend,
    blocks: Sequence[BlockSpan],
    continuing: Sequence[BlockPlan | None],
    temperatures: Sequence[float],
    hidden: torch.Tensor,
) -> tuple[_Reading, Conditioning | None]:
    """Reads the slot rows, a bounded number at a time; soft embeddings of the slots of blocks that go on."""
    slots = [block.block.canvases.shape[0] * len(block.block.slots) for block in blocks]
    rows, tokens, sizes = _candidates(blocks)
    goes_on = np.repeat([plan is not None for plan in continuing], slots)
    allowed = [plan is not None and plan.self_conditioning is SelfConditioning.ALLOWED for plan in continuing]
    allowed_only = np.repeat(allowed, slots)
    temperature = np.repeat(np.array(temperatures, np.float32), slots)
    log_probs: list[torch.Tensor] = []
    log_sums: list[torch.Tensor] = []
    soft: list[torch.Tensor] = []
    for start in range(0, len(hidden), backend.head_rows):
        stop = min(start + backend.head_rows, len(hidden))
        head = backend.head(hidden[start:stop])
        mine = slice(*np.searchsorted(rows, [start, stop]))
        pairs = _Pairs(*(_device(values, backend) for values in (rows[mine] - start, tokens[mine])))
        picked = head.logits(pairs.rows, pairs.tokens)
        log_probs.append(picked - head.log_sums[pairs.rows])
        log_sums.append(head.log_sums)
        if goes_on[start:stop].any():
            softened = _soften(backend, head, pairs, picked, allowed_only[start:stop], temperature[start:stop])
            soft.append(softened[_device(np.flatnonzero(goes_on[start:stop]), backend)])
    reading = _Reading(torch.cat(log_probs), torch.cat(log_sums), sizes, slots)
    return reading, Conditioning(torch.cat(soft), _on_own_token(blocks, continuing)) if soft else None


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Flat (slot row, candidate token) pairs, rows ascending."""

    rows: torch.Tensor
    tokens: torch.Tensor


def _soften(
    backend: Backend,
    head: Head,
    pairs: _Pairs,
    picked: torch.Tensor,
    allowed_only: NDArray[np.bool_],
    temperature: NDArray[np.float32],
) -> torch.Tensor:
    """Expected embeddings under the whole distribution, or under the candidates alone where the template says so."""
    divisor = _device(temperature, backend) if (temperature != 1).any() else None
    if not allowed_only.any():
        return backend.soft_embed(head.probabilities(divisor))
    m = len(allowed_only)
    scaled = picked if divisor is None else picked / divisor[pairs.rows]
    largest = scaled.new_full((m,), -torch.inf).scatter_reduce_(0, pairs.rows, scaled, "amax")
    weights = (scaled - largest[pairs.rows]).exp()
    weights = weights / weights.new_zeros(m).index_add_(0, pairs.rows, weights)[pairs.rows]
    embedded = backend.embed(pairs.tokens)
    allowed = torch.zeros(m, embedded.shape[1], device=embedded.device)
    allowed = allowed.index_add_(0, pairs.rows, weights[:, None] * embedded.float()).to(embedded.dtype)
    if allowed_only.all():
        return allowed
    whole = backend.soft_embed(head.probabilities(divisor))
    return torch.where(_device(allowed_only, backend)[:, None], allowed, whole)


def _on_own_token(blocks: Sequence[BlockSpan], continuing: Sequence[BlockPlan | None]) -> NDArray[np.bool_]:
    kept = [(block, plan) for block, plan in zip(blocks, continuing, strict=True) if plan is not None]
    own = np.array([plan.self_conditioning is not SelfConditioning.SLOTS for _, plan in kept])
    return np.repeat(own, [block.stop - block.canvas for block, _ in kept])


def _device(values: NDArray[Any], backend: Backend) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(backend.device, non_blocking=True)


def _candidates(blocks: Sequence[BlockSpan]) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Flat (slot row, token) pairs, block by block, replica by replica; and how many pairs each block has."""
    copies: list[CanvasBlock] = []
    sizes = []
    for span in blocks:
        block = span.block
        replicas = len(block.canvases)
        copies += [block] * replicas
        sizes.append(replicas * len(block.candidates))
    ends = np.concatenate([block.offsets[1:] for block in copies])
    per_slot = ends - np.concatenate([block.offsets[:-1] for block in copies])
    tokens = np.concatenate([block.candidates for block in copies]).astype(np.int64)
    return np.repeat(np.arange(len(per_slot)), per_slot), tokens, sizes


def _results(blocks: Sequence[BlockSpan], steps: Sequence[_Step]) -> list[BlockResult | NonFiniteLogits]:
    if not steps:
        return []
    readings = [values for step in steps for values in (step.reading.log_probs, step.reading.log_sums)]
    # One copy from the device for all steps, and one look at whether anything is wrong.
    values = torch.cat([reading.float() for reading in readings]).cpu().numpy()
    finite = bool(np.isfinite(values).all())
    log_probs: list[list[Float32]] = [[] for _ in blocks]
    log_sums: list[list[Float32]] = [[] for _ in blocks]
    places = iter(_split(values, [len(reading) for reading in readings]))
    for step in steps:
        parts = _split(next(places), step.reading.candidates), _split(next(places), step.reading.slots)
        for number, probs, sums in zip(step.blocks, *parts, strict=True):
            log_probs[number].append(probs)
            log_sums[number].append(sums)
    return [_result(*each, finite=finite) for each in zip(blocks, log_probs, log_sums, strict=True)]


def _split(values: Float32, sizes: Sequence[int]) -> list[Float32]:
    """Views of consecutive parts."""
    edges = list(accumulate(sizes, initial=0))
    return [values[start:stop] for start, stop in pairwise(edges)]


def _result(
    span: BlockSpan, log_probs: list[Float32], log_sums: list[Float32], *, finite: bool
) -> BlockResult | NonFiniteLogits:
    shape = (len(log_probs), len(span.block.canvases), -1)
    probs, sums = _joined(log_probs).reshape(shape), _joined(log_sums).reshape(shape)
    if not (finite or (np.isfinite(probs).all() and np.isfinite(sums).all())):
        return NonFiniteLogits("the model produced logits that are not finite")
    return BlockResult(probs, sums)


def _joined(steps: list[Float32]) -> Float32:
    return steps[0] if len(steps) == 1 else np.concatenate(steps)
