"""The denoising loop of one packed pass: step 1 is fused with the prefill, later steps rerun canvas rows only.

Between steps a slot is conditioned on what the previous step said, a frozen position on its own token or on nothing,
as the request's `SelfConditioning` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from openjev_server.engine.backbone import Backbone, DeviceTile, KeyValues, Rows
from openjev_server.engine.packing import BlockSpan, PackedPass
from openjev_server.engine.protocol import BlockResult, Float32, NonFiniteLogits, SelfConditioning
from openjev_server.engine.redraw import redrawn
from openjev_server.engine.tiles import Tile, canvas_rows, cut, slot_rows

__all__ = ["BlockPlan", "denoise"]

HEAD_ROWS = 256
"""Slot rows whose logits over the vocabulary are held at once: 256 MiB in float32 at 262,144 tokens."""


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How a block of the pass is denoised."""

    steps: int
    self_conditioning: SelfConditioning
    temperatures: tuple[float, ...] = ()

    def temperature(self, step: int) -> float:
        """What the slots' logits of this step, from 1, are divided by before they condition or redraw the next."""
        return self.temperatures[step - 1] if step <= len(self.temperatures) else 1.0


def denoise(
    backbone: Backbone, packed: PackedPass, plans: Sequence[BlockPlan], prefix: Sequence[KeyValues]
) -> tuple[list[BlockResult | NonFiniteLogits], list[KeyValues]]:
    """One result per block of the pass, and the key store [prefix + rows] of every layer.

    `prefix` holds the keys and values of the states' earlier parts (none where `packed.prefix_rows` is 0).
    """
    store = _new_store(backbone, packed, prefix)
    readings: list[list[_Reading]] = [[] for _ in packed.blocks]
    conditioning: _Conditioning | None = None
    for step in range(1, max((plan.steps for plan in plans), default=1) + 1):
        active = [number for number, plan in enumerate(plans) if plan.steps >= step]
        blocks = [packed.blocks[number] for number in active]
        hidden = _forward(backbone, packed, blocks, store, conditioning)
        continuing = [plans[number] if plans[number].steps > step else None for number in active]
        temperatures = [plan.temperature(step) if plan is not None else 1.0 for plan in continuing]
        step_readings, soft = _read(backbone, blocks, continuing, temperatures, hidden)
        if soft is not None:
            conditioning = _Conditioning(soft, _on_own_token(blocks, continuing))
        for number, reading in zip(active, step_readings, strict=True):
            readings[number].append(reading)
        packed = _redraw(packed, blocks, continuing, step_readings, step)
    return [_result(block, steps) for block, steps in zip(packed.blocks, readings, strict=True)], store


@dataclass(frozen=True, slots=True)
class _Reading:
    """One block, one step: candidate log-probabilities [replicas * K] and logsumexp [replicas * S]."""

    log_probs: Float32
    logsumexp: Float32


@dataclass(frozen=True, slots=True)
class _Conditioning:
    """What the canvas rows of the blocks that go on are conditioned on."""

    soft: torch.Tensor
    """Soft embeddings of the slot rows, [m, hidden]."""
    on_own_token: NDArray[np.bool_]
    """Per canvas row: whether a frozen position sees its own token's embedding, else nothing."""


def _redraw(
    packed: PackedPass,
    blocks: Sequence[BlockSpan],
    continuing: Sequence[BlockPlan | None],
    readings: Sequence[_Reading],
    step: int,
) -> PackedPass:
    """The pass with new tokens at the slots of the blocks that redraw them."""
    tokens = packed.tokens
    for span, plan, reading in zip(blocks, continuing, readings, strict=True):
        if plan is None or span.block.redraw is None:
            continue
        if tokens is packed.tokens:
            tokens = tokens.copy()
        replicas, width = span.block.canvases.shape
        log_probs = reading.log_probs.reshape(replicas, -1)
        rows = span.canvas + np.arange(replicas)[:, None] * width + span.block.slots[None, :]
        tokens[rows] = redrawn(span.block, log_probs, step=step, temperature=plan.temperature(step))
    return packed if tokens is packed.tokens else replace(packed, tokens=tokens)


def _on_own_token(blocks: Sequence[BlockSpan], continuing: Sequence[BlockPlan | None]) -> NDArray[np.bool_]:
    kept = [(block, plan) for block, plan in zip(blocks, continuing, strict=True) if plan is not None]
    own = np.array([plan.self_conditioning is not SelfConditioning.SLOTS for _, plan in kept])
    return np.repeat(own, [block.stop - block.canvas for block, _ in kept])


def _new_store(backbone: Backbone, packed: PackedPass, prefix: Sequence[KeyValues]) -> list[KeyValues]:
    store = []
    for index, layer in enumerate(backbone.config.layers):
        shape = (packed.prefix_rows + packed.rows, layer.kv_heads, layer.head_dim)
        keys, values = (torch.empty(shape, dtype=backbone.dtype, device=backbone.device) for _ in range(2))
        if packed.prefix_rows:
            keys[: packed.prefix_rows] = prefix[index].keys
            values[: packed.prefix_rows] = prefix[index].values
        store.append(KeyValues(keys, values))
    return store


def _forward(
    backbone: Backbone,
    packed: PackedPass,
    blocks: Sequence[BlockSpan],
    store: list[KeyValues],
    conditioning: _Conditioning | None,
) -> torch.Tensor:
    """Final hidden states of the blocks' slot rows. Without conditioning it is the first step, over all rows of the
    pass; with it only the blocks' canvas rows run."""
    chosen = np.arange(packed.rows) if conditioning is None else canvas_rows(blocks)
    wanted = slot_rows(blocks)
    rows = _rows(backbone, packed, blocks, chosen, wanted)
    embedded = backbone.embed(_index(packed.tokens[chosen], backbone))
    if conditioning is None:
        canvas = rows.is_canvas.nonzero()[:, 0]
        embedded.index_copy_(0, canvas, backbone.condition(embedded[canvas], None))
    else:
        frozen = embedded * _mask(conditioning.on_own_token, embedded)[:, None]
        embedded = backbone.condition(embedded, frozen.index_copy(0, rows.wanted, conditioning.soft))
    return backbone.forward(embedded, rows, store)


def _rows(
    backbone: Backbone,
    packed: PackedPass,
    blocks: Sequence[BlockSpan],
    chosen: NDArray[np.int64],
    wanted: NDArray[np.int64],
) -> Rows:
    window = backbone.config.window
    runs, reads = np.zeros(packed.rows, bool), np.zeros(packed.rows, bool)
    runs[chosen], reads[wanted] = True, True
    place = np.zeros(packed.rows, np.int64)
    place[chosen] = np.arange(len(chosen))
    full = [_tile(tile, place, backbone) for tile in cut(packed, None, blocks=blocks, wanted=runs)]
    sliding = full
    if packed.positions.max(initial=0) >= window:
        sliding = [_tile(tile, place, backbone) for tile in cut(packed, window, blocks=blocks, wanted=runs)]
    read_place = np.zeros(packed.rows, np.int64)
    read_place[wanted] = np.arange(len(wanted))
    return Rows(
        positions=_index(packed.positions[chosen], backbone),
        is_canvas=torch.from_numpy(packed.is_canvas[chosen]).to(backbone.device),
        store=_index(chosen + packed.prefix_rows, backbone),
        wanted=_index(place[wanted], backbone),
        sliding=sliding,
        full=full,
        last=[_tile(tile, read_place, backbone) for tile in cut(packed, None, blocks=blocks, wanted=reads)],
    )


def _tile(tile: Tile, place: NDArray[np.int64], backbone: Backbone) -> DeviceTile:
    # Added to the scores, not a boolean: the CPU kernel would convert a boolean one again in every layer.
    mask = np.where(tile.mask, np.float32(0), np.float32(-np.inf))
    return DeviceTile(
        _run(place[tile.queries], backbone),
        _run(tile.keys, backbone),
        torch.from_numpy(mask).to(device=backbone.device, dtype=backbone.dtype),
    )


def _run(values: NDArray[np.int64], backbone: Backbone) -> torch.Tensor | slice:
    """A slice where the indices are consecutive: a view instead of a gathered copy, in every layer."""
    if len(values) and values[-1] - values[0] == len(values) - 1 and (np.diff(values) == 1).all():
        return slice(int(values[0]), int(values[-1]) + 1)
    return _index(values, backbone)


def _index(values: NDArray[np.int64], backbone: Backbone) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(backbone.device)


def _read(
    backbone: Backbone,
    blocks: Sequence[BlockSpan],
    continuing: Sequence[BlockPlan | None],
    temperatures: Sequence[float],
    hidden: torch.Tensor,
) -> tuple[list[_Reading], torch.Tensor | None]:
    """Logits of the slot rows, a bounded number at a time; soft embeddings of the slots of blocks that go on."""
    slots = [block.block.canvases.shape[0] * len(block.block.slots) for block in blocks]
    rows, tokens, sizes = _candidates(blocks)
    goes_on = np.repeat(np.array([plan is not None for plan in continuing], bool), slots)
    allowed = [plan is not None and plan.self_conditioning is SelfConditioning.ALLOWED for plan in continuing]
    allowed_only = np.repeat(np.array(allowed, bool), slots)
    temperature = np.repeat(np.array(temperatures, np.float32), slots)
    log_probs = np.empty(len(rows), np.float32)
    logsumexp = np.empty(len(hidden), np.float32)
    soft: list[torch.Tensor] = []
    for start in range(0, len(hidden), HEAD_ROWS):
        stop = min(start + HEAD_ROWS, len(hidden))
        logits = backbone.logits(hidden[start:stop])
        total = logits.logsumexp(-1)
        mine = slice(*np.searchsorted(rows, [start, stop]))
        at, token = _index(rows[mine] - start, backbone), _index(tokens[mine], backbone)
        picked = logits[at, token]
        log_probs[mine] = (picked - total[at]).cpu().numpy()
        logsumexp[start:stop] = total.cpu().numpy()
        if goes_on[start:stop].any():
            softened = _soften(backbone, logits, at, token, allowed_only[start:stop], temperature[start:stop])
            soft.append(softened[_mask(goes_on[start:stop], logits)])
    readings = (
        [
            _Reading(values, totals)
            for values, totals in zip(
                np.split(log_probs, np.cumsum(sizes)[:-1]), np.split(logsumexp, np.cumsum(slots)[:-1]), strict=True
            )
        ]
        if blocks
        else []
    )
    return readings, torch.cat(soft) if soft else None


def _soften(
    backbone: Backbone,
    logits: torch.Tensor,
    at: torch.Tensor,
    token: torch.Tensor,
    allowed_only: NDArray[np.bool_],
    temperature: NDArray[np.float32],
) -> torch.Tensor:
    """Expected embeddings under the whole distribution, or under the candidates alone where the template says so."""
    if allowed_only.any():
        restricted = torch.full_like(logits, -torch.inf)
        restricted[at, token] = logits[at, token]
        logits = torch.where(_mask(allowed_only, logits)[:, None], restricted, logits)
    if (temperature != 1).any():
        logits = logits / torch.from_numpy(temperature).to(logits.device)[:, None]
    return backbone.soft_embed(logits.softmax(-1))


def _mask(values: NDArray[np.bool_], like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.device)


def _candidates(blocks: Sequence[BlockSpan]) -> tuple[NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Flat (slot row, token) pairs, block by block, replica by replica; and how many pairs each block has."""
    rows: list[NDArray[np.int64]] = []
    tokens: list[NDArray[np.int64]] = []
    sizes: list[int] = []
    start = 0
    for span in blocks:
        block = span.block
        replicas, count = block.canvases.shape[0], len(block.slots)
        within = np.repeat(np.arange(count), np.diff(block.offsets))
        rows.append((start + np.arange(replicas)[:, None] * count + within[None, :]).reshape(-1))
        tokens.append(np.tile(block.candidates.astype(np.int64), replicas))
        sizes.append(len(rows[-1]))
        start += replicas * count
    if not blocks:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), []
    return np.concatenate(rows), np.concatenate(tokens), sizes


def _result(span: BlockSpan, steps: Sequence[_Reading]) -> BlockResult | NonFiniteLogits:
    replicas = span.block.canvases.shape[0]
    log_probs = np.stack([step.log_probs for step in steps]).reshape(len(steps), replicas, -1)
    logsumexp = np.stack([step.logsumexp for step in steps]).reshape(len(steps), replicas, -1)
    if not (np.isfinite(log_probs).all() and np.isfinite(logsumexp).all()):
        return NonFiniteLogits("the model produced logits that are not finite")
    return BlockResult(log_probs, logsumexp)
