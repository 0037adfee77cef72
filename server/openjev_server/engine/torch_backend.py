"""The model in plain PyTorch, on a CPU or any device: attention tile by tile, correctness before speed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from openjev_server.engine.backbone import Backbone, DeviceTile, KeyValues, Rows
from openjev_server.engine.backend import Conditioning
from openjev_server.engine.packing import BlockSpan, PackedPass
from openjev_server.engine.tiles import Tile, canvas_rows, cut, slot_rows

__all__ = ["TorchBackend"]


class TorchBackend:
    """Implements `Backend` over `Backbone`."""

    head_rows = 256
    """256 MiB of float32 logits at 262,144 tokens."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._pool: list[KeyValues] = []

    @property
    def device(self) -> torch.device:
        return self._backbone.device

    def allocate(self, capacity: int) -> None:
        """Unwritten rows of a CPU pool take no memory: the system gives pages when they are touched."""
        self._pool = []
        for layer in self._backbone.config.layers:
            shape = (capacity, layer.kv_heads, layer.head_dim)
            keys, values = (torch.empty(shape, dtype=self._backbone.dtype, device=self.device) for _ in range(2))
            self._pool.append(KeyValues(keys, values))

    def warm_up(self, token_budget: int) -> None:
        """Nothing is compiled."""

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._backbone.embed(tokens)

    def soft_embed(self, probabilities: torch.Tensor) -> torch.Tensor:
        return self._backbone.soft_embed(probabilities)

    def head(self, hidden: torch.Tensor) -> _Head:
        return _Head(self._backbone.logits(hidden))

    def run(self, packed: PackedPass, blocks: list[BlockSpan], conditioning: Conditioning | None) -> torch.Tensor:
        backbone = self._backbone
        chosen = np.arange(packed.rows) if conditioning is None else canvas_rows(blocks)
        rows = self._rows(packed, blocks, chosen, slot_rows(blocks))
        embedded = backbone.embed(self._index(packed.tokens[chosen]))
        if conditioning is None:
            canvas = rows.is_canvas.nonzero()[:, 0]
            embedded.index_copy_(0, canvas, backbone.condition(embedded[canvas], None))
        else:
            frozen = embedded * torch.from_numpy(conditioning.on_own_token).to(self.device)[:, None]
            embedded = backbone.condition(embedded, frozen.index_copy(0, rows.wanted, conditioning.soft))
        return backbone.forward(embedded, rows, self._pool)

    def _rows(
        self, packed: PackedPass, blocks: list[BlockSpan], chosen: NDArray[np.int64], wanted: NDArray[np.int64]
    ) -> Rows:
        window = self._backbone.config.window
        runs, reads = np.zeros(packed.rows, bool), np.zeros(packed.rows, bool)
        runs[chosen], reads[wanted] = True, True
        place = np.zeros(packed.rows, np.int64)
        place[chosen] = np.arange(len(chosen))
        full = [self._tile(tile, place) for tile in cut(packed, None, blocks=blocks, wanted=runs)]
        sliding = full
        if packed.positions.max(initial=0) >= window:
            sliding = [self._tile(tile, place) for tile in cut(packed, window, blocks=blocks, wanted=runs)]
        read_place = np.zeros(packed.rows, np.int64)
        read_place[wanted] = np.arange(len(wanted))
        return Rows(
            positions=self._index(packed.positions[chosen]),
            is_canvas=torch.from_numpy(packed.is_canvas[chosen]).to(self.device),
            store=self._index(packed.store[chosen]),
            wanted=self._index(place[wanted]),
            sliding=sliding,
            full=full,
            last=[self._tile(tile, read_place) for tile in cut(packed, None, blocks=blocks, wanted=reads)],
        )

    def _tile(self, tile: Tile, place: NDArray[np.int64]) -> DeviceTile:
        # Added to the scores, not a boolean: the CPU kernel would convert a boolean one again in every layer.
        mask = np.where(tile.mask, np.float32(0), np.float32(-np.inf))
        return DeviceTile(
            self._run(place[tile.queries]),
            self._run(tile.keys),
            torch.from_numpy(mask).to(device=self.device, dtype=self._backbone.dtype),
        )

    def _run(self, values: NDArray[np.int64]) -> torch.Tensor | slice:
        """A slice where the indices are consecutive: a view instead of a gathered copy, in every layer."""
        if len(values) and values[-1] - values[0] == len(values) - 1 and (np.diff(values) == 1).all():
            return slice(int(values[0]), int(values[-1]) + 1)
        return self._index(values)

    def _index(self, values: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=np.int64)).to(self.device)


@dataclass(frozen=True)
class _Head:
    """Float32 logits [m, vocab]."""

    _logits: torch.Tensor

    @cached_property
    def log_sums(self) -> torch.Tensor:
        return self._logits.logsumexp(-1)

    def logits(self, rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self._logits[rows, tokens]

    def probabilities(self, temperature: torch.Tensor | None) -> torch.Tensor:
        logits = self._logits if temperature is None else self._logits / temperature[:, None]
        return logits.softmax(-1)
