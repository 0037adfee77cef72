"""The seed's way: stock transformers' `generate` on padded batches of whole prompts.

A 256-token canvas, the dynamic cache, prompts padded on the left, sorted by length, a logits processor that leaves
frozen positions their token and slots their candidates. The batch starts at 64 canvases and halves whenever it runs
out of memory; what a failed attempt took is counted apart. Only `generate` is timed, as the seed timed it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from openjev_server.engine.protocol import EngineRequest

__all__ = ["StockRun", "run_stock"]

FIRST_BATCH = 64


@dataclass(frozen=True, slots=True)
class StockRun:
    """`seconds` are of the batches that succeeded."""

    seconds: float
    failed_seconds: float
    batches: tuple[tuple[int, int, float], ...]
    """(canvases, padded prompt tokens, seconds)"""
    failures: tuple[int, ...]
    """Canvases of the attempts that ran out of memory."""


class _KeepAllowed:
    """Logits [B, canvas, vocab]: everything but each position's allowed tokens becomes -inf."""

    def __init__(self, where: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
        self._where = where

    def __call__(self, _ids: torch.Tensor, scores: torch.Tensor, cur_step: Any = None) -> torch.Tensor:
        kept = torch.full_like(scores, -torch.inf)
        kept[self._where] = scores[self._where]
        return kept


def run_stock(model: Any, requests: Sequence[EngineRequest], *, first_batch: int = FIRST_BATCH) -> StockRun:
    """One canvas per request: its first block, first replica. All take the first request's number of steps.

    Raises torch.OutOfMemoryError when a single canvas does not fit.
    """
    waiting = sorted(requests, key=_prompt_tokens)
    size = first_batch
    batches: list[tuple[int, int, float]] = []
    failures: list[int] = []
    failed_seconds = 0.0
    while waiting:
        batch = waiting[:size]
        took, fits = _attempt(model, batch)
        if fits:
            batches.append((len(batch), _prompt_tokens(batch[-1]) * len(batch), took))
            waiting = waiting[len(batch) :]
            continue
        failures.append(len(batch))
        failed_seconds += took
        if len(batch) == 1:
            raise torch.OutOfMemoryError("one canvas does not fit")
        size = max(1, size // 2)
    return StockRun(sum(took for _, _, took in batches), failed_seconds, tuple(batches), tuple(failures))


def _prompt_tokens(request: EngineRequest) -> int:
    return len(request.state) + len(request.blocks[0].suffix)


def _attempt(model: Any, batch: Sequence[EngineRequest]) -> tuple[float, bool]:
    """Seconds, and whether it fitted. The failure's traceback is gone before memory is returned: it pins tensors."""
    _synchronize(model)
    started = time.perf_counter()
    fits = True
    try:
        _generate(model, batch)
    except torch.OutOfMemoryError:
        fits = False
    _synchronize(model)
    took = time.perf_counter() - started
    if not fits:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return took, fits


def _generate(model: Any, batch: Sequence[EngineRequest]) -> None:
    from transformers import LogitsProcessorList

    device = model.lm_head.weight.device
    longest = max(map(_prompt_tokens, batch))
    prompts = np.zeros((len(batch), longest), np.int64)
    mask = np.zeros((len(batch), longest), np.int64)
    for row, request in enumerate(batch):
        prompt = np.concatenate([request.state, request.blocks[0].suffix])
        prompts[row, longest - len(prompt) :] = prompt
        mask[row, longest - len(prompt) :] = 1
    canvases = np.stack([request.blocks[0].canvases[0] for request in batch]).astype(np.int64)
    where = tuple(torch.from_numpy(index).to(device) for index in _allowed(batch, canvases))
    model.generate(
        input_ids=torch.from_numpy(prompts).to(device),
        attention_mask=torch.from_numpy(mask).to(device),
        decoder_input_ids=torch.from_numpy(canvases).to(device),
        logits_processor=LogitsProcessorList([_KeepAllowed(where)]),  # type: ignore[arg-type]
        max_new_tokens=canvases.shape[1],
        max_denoising_steps=batch[0].steps,
        t_min=0.4,
        t_max=0.8,
    )


def _allowed(
    batch: Sequence[EngineRequest], canvases: np.ndarray[Any, np.dtype[np.int64]]
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
    """(canvas, position, token) of everything that may stand somewhere."""
    rows, places, allowed = [], [], []
    for row, request in enumerate(batch):
        block = request.blocks[0]
        frozen = np.setdiff1d(np.arange(canvases.shape[1]), block.slots)
        at = np.concatenate([frozen, np.repeat(block.slots, np.diff(block.offsets))]).astype(np.int64)
        rows.append(np.full(len(at), row, np.int64))
        places.append(at)
        allowed.append(np.concatenate([canvases[row, frozen], block.candidates]).astype(np.int64))
    return np.concatenate(rows), np.concatenate(places), np.concatenate(allowed)


def _synchronize(model: Any) -> None:
    if model.lm_head.weight.is_cuda:
        torch.cuda.synchronize()
