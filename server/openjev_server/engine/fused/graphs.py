"""Small passes as captured CUDA graphs: launching a layer's kernels one by one would take longer than running them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from openjev_server.engine.backbone import KeyValues
from openjev_server.engine.fused.forward import Forward
from openjev_server.engine.fused.layout import Columns, Sizes, TileRows, fill

__all__ = ["BUCKETS", "Graphs", "bucket_sizes"]

logger = logging.getLogger(__name__)

BUCKETS = (64, 96, 128, 192, 256, 384, 512, 640, 768, 1024, 1536, 2048)
"""Rows that run. A pass is padded to the next larger one, by a third of it at most above 64."""
SPARE_TILES = 64
"""Tiles beyond the rows' own: every state and every run of blocks may end in one that is not full."""
TABLE = 32_768
"""State positions that a captured pass may read in all."""


def bucket_sizes(rows: int, tiles: TileRows, *, later: bool) -> Sizes:
    """Sizes of the buffer that a captured pass of so many rows reads."""
    wanted = max(32, rows // 4)
    return Sizes(
        rows=rows,
        wanted=wanted,
        pass_rows=2 * BUCKETS[-1] if later else rows,
        table=TABLE,
        sliding=-(-rows // tiles.sliding) + SPARE_TILES,
        full=-(-rows // tiles.full) + SPARE_TILES,
        last=-(-wanted // tiles.full) + SPARE_TILES,
    )


@dataclass(frozen=True)
class _Captured:
    graph: torch.cuda.CUDAGraph
    sizes: Sizes
    host: torch.Tensor
    buffer: torch.Tensor
    soft: torch.Tensor | None
    hidden: torch.Tensor
    copied: torch.cuda.Event


class Graphs:
    """One graph for each bucket and kind of step, all in one memory pool: only one runs at a time."""

    def __init__(self, forward: Forward, pool: list[KeyValues], tiles: TileRows, unread_row: int) -> None:
        self._forward = forward
        self._pool = pool
        self._tiles = tiles
        self._unread_row = unread_row
        self._captured: dict[bool, list[_Captured]] = {False: [], True: []}

    def capture(self) -> None:
        """Captures the largest first, so that the smaller ones fit the memory it left."""
        memory = torch.cuda.graph_pool_handle()
        for later in (False, True):
            for rows in reversed(BUCKETS):
                self._captured[later].insert(0, self._capture(rows, later, memory))

    def replay(self, columns: Columns, soft: torch.Tensor | None) -> torch.Tensor | None:
        """Final hidden states [m, hidden], or None where no graph has room for the pass."""
        needed = columns.sizes
        for captured in self._captured[soft is not None]:
            if captured.sizes.holds(needed):
                break
        else:
            return None
        # The last copy out of the pinned buffer may still be on its way.
        captured.copied.synchronize()
        fill(captured.host.numpy(), captured.sizes, columns, unread_row=self._unread_row)
        captured.buffer.copy_(captured.host, non_blocking=True)
        captured.copied.record()
        if soft is not None and captured.soft is not None:
            captured.soft[: len(soft)].copy_(soft)
        captured.graph.replay()
        return captured.hidden[: needed.wanted].clone()

    def _capture(self, rows: int, later: bool, memory: Any) -> _Captured:
        sizes = bucket_sizes(rows, self._tiles, later=later)
        host = torch.zeros(sizes.total, dtype=torch.int32).pin_memory()
        _blank(host, sizes, self._unread_row)
        keys = self._pool[0].keys
        buffer = host.to(keys.device)
        width = self._forward.hidden_size
        soft = torch.zeros(sizes.wanted, width, dtype=keys.dtype, device=keys.device) if later else None
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._forward(buffer, sizes, self._pool, soft, padded=True)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=memory):
            hidden = self._forward(buffer, sizes, self._pool, soft, padded=True)
        return _Captured(graph, sizes, host, buffer, soft, hidden, torch.cuda.Event())


def _blank(host: torch.Tensor, sizes: Sizes, unread_row: int) -> None:
    """A pass of nothing but padding."""
    nothing = np.zeros(0, np.int64)
    fields = dict.fromkeys(sizes.lengths(), nothing)
    fill(host.numpy(), sizes, Columns(**fields), unread_row=unread_row)
