"""The engine in plain PyTorch, on a CPU or a CUDA device: packs, denoises, and lets a request fail alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import torch

from openjev_server.engine.backbone import Backbone, KeyValues
from openjev_server.engine.denoise import BlockPlan, denoise
from openjev_server.engine.packing import PackedPass, PassItem, pack
from openjev_server.engine.protocol import (
    BlockResult,
    CanvasBlock,
    EngineError,
    EngineInfo,
    EngineRequest,
    EngineResult,
    NonFiniteLogits,
)
from openjev_server.engine.schedule import Progress, next_pass

__all__ = ["TorchEngine"]

logger = logging.getLogger(__name__)

SMALLEST_BUDGET = 256
"""Tokens; below this, halving the budget after running out of memory no longer helps."""


class TorchEngine:
    """Owns the model. Not thread safe: one thread calls `run`."""

    def __init__(self, backbone: Backbone, info: EngineInfo, *, token_budget: int) -> None:
        self._backbone = backbone
        self._info = info
        self._budget = token_budget

    @property
    def info(self) -> EngineInfo:
        return self._info

    def close(self) -> None:
        """Nothing to release beyond the memory that goes with this object."""

    def warm_up(self) -> None:
        """Evaluates a small request twice: one step on cold kernels, one that continues."""
        tokens = np.arange(1, 9, dtype=np.int32) % self._info.vocab_size
        one = np.zeros(1, np.int32)
        block = CanvasBlock(tokens, tokens[None], one, tokens[:1], np.array([0, 1], np.int32))
        for result in self.run([EngineRequest(tokens, (block, block), steps=2)]):
            if isinstance(result, EngineError):
                raise result

    @torch.inference_mode()
    def run(self, requests: Sequence[EngineRequest]) -> list[EngineResult | EngineError]:
        outcomes: dict[int, EngineResult | EngineError] = {}
        waiting: list[Progress] = []
        for number, request in enumerate(requests):
            fault = self._fault(request)
            if fault is not None:
                outcomes[number] = EngineError(fault)
                continue
            blocks = [(index, block) for index, block in enumerate(request.blocks) if len(block.slots)]
            waiting.append(Progress(number, request, blocks))
        budget = self._budget
        while waiting:
            for progress in [progress for progress in waiting if progress.finished]:
                outcomes[progress.number] = _collect(progress)
                waiting.remove(progress)
            if waiting:
                budget = self._advance(waiting, outcomes, budget)
        return [outcomes[number] for number in range(len(requests))]

    def _advance(self, waiting: list[Progress], outcomes: dict[int, EngineResult | EngineError], budget: int) -> int:
        """Runs one pass; returns the budget for the next. Requests that failed leave `waiting` for `outcomes`."""
        items = next_pass(waiting, budget)
        taking_part = {
            progress.number: progress for progress in waiting if progress.number in {i.request for i in items}
        }
        failure: Exception | None = None
        out_of_memory = False
        try:
            self._pass(items, taking_part)
        except torch.OutOfMemoryError:
            out_of_memory = True
        except Exception as error:  # whatever a kernel raises belongs to the requests of this pass alone
            failure = error.with_traceback(None)
        # Out of the except block: its traceback would pin the tensors that must be freed first.
        if out_of_memory and budget > SMALLEST_BUDGET:
            torch.cuda.empty_cache()
            logger.warning("out of memory at a budget of %d tokens; halving it for this batch", budget)
            return max(budget // 2, SMALLEST_BUDGET)
        if out_of_memory:
            failure = EngineError("out of memory for this request alone")
        if failure is not None and len(items) > 1:
            for progress in taking_part.values():
                progress.alone = True
        elif failure is not None:
            outcomes[items[0].request] = failure if isinstance(failure, EngineError) else EngineError(str(failure))
            waiting.remove(taking_part[items[0].request])
            if not isinstance(failure, NonFiniteLogits):
                logger.error("a request failed in the engine: %s", failure)
        return budget

    def _pass(self, items: list[PassItem], taking_part: dict[int, Progress]) -> None:
        packed = pack(items)
        layers = range(len(self._backbone.config.layers))
        parts = [taking_part[item.request].keys for item in items if item.start]
        prefix = [
            KeyValues(torch.cat([p[index].keys for p in parts]), torch.cat([p[index].values for p in parts]))
            for index in layers
            if parts
        ]
        plans = []
        for block in packed.blocks:
            request = taking_part[items[block.item].request].request
            plans.append(BlockPlan(request.steps, request.self_conditioning, request.temperatures))
        results, store = denoise(self._backbone, packed, plans, prefix)
        if len(items) == 1:
            for result in results:
                if isinstance(result, NonFiniteLogits):
                    raise result
        elif any(isinstance(result, NonFiniteLogits) for result in results):
            raise NonFiniteLogits("a request of the pass has logits that are not finite")
        for span, result in zip(packed.blocks, results, strict=True):
            assert isinstance(result, BlockResult)
            taking_part[items[span.item].request].results[span.index] = result
        for number, item in enumerate(items):
            progress = taking_part[item.request]
            progress.state_done = item.stop
            progress.block_next += len(item.blocks)
            progress.keys = [] if progress.finished else _state_keys(packed, number, store)

    def _fault(self, request: EngineRequest) -> str | None:
        """Why the model cannot take the request, if it cannot."""
        if request.steps < 1 or not len(request.state):
            return "a request needs a state and at least one denoising step"
        longest = 0
        parts = [part for block in request.blocks for part in (block.suffix, block.canvases)]
        parts += [block.redraw.tokens for block in request.blocks if block.redraw is not None]
        for tokens in (request.state, *parts):
            if tokens.size and (int(tokens.min()) < 0 or int(tokens.max()) >= self._info.vocab_size):
                return "a token id is outside the vocabulary"
        for block in request.blocks:
            longest = max(longest, len(block.suffix) + block.canvases.shape[1])
        if len(request.state) + longest > self._info.max_positions:
            return f"the prompt is longer than the model's {self._info.max_positions} positions"
        return None


def _state_keys(packed: PackedPass, number: int, store: list[KeyValues]) -> list[KeyValues]:
    span = packed.states[number]
    rows = torch.from_numpy(span.keys(packed.prefix_rows, 0, span.stop)).to(store[0].keys.device)
    return [KeyValues(layer.keys[rows], layer.values[rows]) for layer in store]


def _collect(progress: Progress) -> EngineResult:
    empty = np.zeros((progress.request.steps, 1, 0), np.float32)
    results = []
    for index, block in enumerate(progress.request.blocks):
        replicas = block.canvases.shape[0]
        nothing = np.broadcast_to(empty, (progress.request.steps, replicas, 0))
        results.append(progress.results.get(index) or BlockResult(nothing, nothing))
    return EngineResult(tuple(results))
