"""`Backend` in fused kernels: eager for large passes, captured graphs for small ones."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch.nn import functional

from openjev_server.engine.backbone import Backbone, KeyValues
from openjev_server.engine.backend import Conditioning
from openjev_server.engine.fused import head
from openjev_server.engine.fused.attention import tile_rows
from openjev_server.engine.fused.forward import Forward
from openjev_server.engine.fused.graphs import Graphs
from openjev_server.engine.fused.layout import Columns, TileRows, columns_of, fill
from openjev_server.engine.packing import BlockSpan, PackedPass, PassBlock, PassItem, pack
from openjev_server.engine.protocol import CanvasBlock
from openjev_server.engine.tiles import canvas_rows, slot_rows

__all__ = ["FusedBackend"]

logger = logging.getLogger(__name__)


class FusedBackend:
    """Implements `Backend` on a CUDA device (or in Triton's interpreter, for tests)."""

    head_rows = 512
    """256 MiB of bf16 logits at 262,144 tokens."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._forward = Forward(backbone)
        self._pool: list[KeyValues] = []
        self._unread_row = 0
        self._graphs: Graphs | None = None
        config = backbone.config
        sizes = {layer.full: tile_rows(config.heads, layer.kv_heads, layer.head_dim) for layer in config.layers}
        self._tiles = TileRows(sliding=sizes.get(False, 1), full=sizes.get(True, 1))

    @property
    def device(self) -> torch.device:
        return self._backbone.device

    @property
    def forward(self) -> Forward:
        return self._forward

    def allocate(self, capacity: int) -> None:
        """One row more than asked for: padding writes its keys there."""
        self._unread_row = capacity
        self._pool = []
        for layer in self._backbone.config.layers:
            shape = (capacity + 1, layer.kv_heads, layer.head_dim)
            keys, values = (torch.empty(shape, dtype=self._backbone.dtype, device=self.device) for _ in range(2))
            self._pool.append(KeyValues(keys, values))

    def warm_up(self, token_budget: int) -> None:
        """Compiles the kernels at every size they are chosen by, then captures the graphs."""
        size = token_budget
        while size >= 16:
            self._dummy(size)
            size //= 2
        if self.device.type == "cuda":
            self._graphs = Graphs(self._forward, self._pool, self._tiles, self._unread_row)
            self._graphs.capture()

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return self._backbone.embed(tokens)

    def soft_embed(self, probabilities: torch.Tensor) -> torch.Tensor:
        return self._backbone.soft_embed(probabilities)

    def head(self, hidden: torch.Tensor) -> _Head:
        raw = functional.linear(hidden, self._backbone.weights.embedding)
        return _Head(raw, self._backbone.config.softcap)

    def run(self, packed: PackedPass, blocks: list[BlockSpan], conditioning: Conditioning | None) -> torch.Tensor:
        columns = columns_of(
            packed,
            blocks,
            chosen=np.arange(packed.rows) if conditioning is None else canvas_rows(blocks),
            wanted=slot_rows(blocks),
            on_own_token=None if conditioning is None else conditioning.on_own_token,
            window=self._backbone.config.window,
            tiles=self._tiles,
        )
        soft = None if conditioning is None else conditioning.soft
        if self._graphs is not None:
            captured = self._graphs.replay(columns, soft)
            if captured is not None:
                return captured
        return self._eager(columns, soft)

    def _eager(self, columns: Columns, soft: torch.Tensor | None) -> torch.Tensor:
        sizes = columns.sizes
        host = torch.empty(sizes.total, dtype=torch.int32, pin_memory=self.device.type == "cuda")
        fill(host.numpy(), sizes, columns, unread_row=self._unread_row)
        buffer = host.to(self.device, non_blocking=True)
        return self._forward(buffer, sizes, self._pool, soft, padded=False)

    def _dummy(self, rows: int) -> None:
        """A pass of about so many rows, two steps."""
        canvas = np.zeros((1, 8), np.int32)
        one = np.zeros(1, np.int32)
        block = CanvasBlock(np.zeros(4, np.int32), canvas, one, one, np.array([0, 1], np.int32))
        state = np.zeros(max(1, rows - 12), np.int32)
        # The pool is still empty: any rows do.
        item = PassItem(state, np.arange(len(state)), 0, len(state), (PassBlock(0, 0, block),))
        packed = pack([item], np.arange(len(state), len(state) + 12))
        spans = list(packed.blocks)
        hidden = self.run(packed, spans, None)
        probabilities = self.head(hidden).probabilities(None)
        self.run(packed, spans, Conditioning(self.soft_embed(probabilities), np.ones(8, bool)))


@dataclass(frozen=True)
class _Head:
    """Raw logits [m, vocab] in the weights' dtype; capped when they are read."""

    _raw: torch.Tensor
    _cap: float

    @cached_property
    def log_sums(self) -> torch.Tensor:
        return head.log_sum_exp(self._raw, self._cap)

    def logits(self, rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self._capped(self._raw[rows, tokens])

    def probabilities(self, temperature: torch.Tensor | None) -> torch.Tensor:
        if temperature is not None:
            return (self._capped(self._raw) / temperature[:, None]).softmax(-1).to(self._raw.dtype)
        head.to_probabilities(self._raw, self.log_sums, self._cap)
        return self._raw

    def _capped(self, raw: torch.Tensor) -> torch.Tensor:
        return (raw.float() / self._cap).tanh() * self._cap
