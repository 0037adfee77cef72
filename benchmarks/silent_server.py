"""`openjev serve` with an engine that computes nothing: `python -m benchmarks.silent_server DIRECTORY`.

The directory holds config.json and tokenizer.json. Everything else is the product: its front, its engine process, and
in that process the product's engine (packing, schedule, key pool, the buffer that a GPU would be sent, results), with a
model whose every logit is 0.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from openjev_server import serving
from openjev_server.engine.backend import Conditioning
from openjev_server.engine.fused.layout import TileRows, columns_of, fill
from openjev_server.engine.packing import BlockSpan, PackedPass
from openjev_server.engine.protocol import EngineInfo
from openjev_server.engine.tiles import canvas_rows, slot_rows
from openjev_server.engine.torch_engine import TorchEngine
from openjev_server.fleet.plan import engine_devices
from openjev_server.settings import Settings

from benchmarks.random_server import specs_loaded_by

__all__ = ["SilentBackend", "main", "silent_engine"]

LOADER = "benchmarks.silent_server:silent_engine"
INFO = EngineInfo("511e17000000", "bfloat16", "cpu", vocab_size=262_144, max_positions=262_144)
WINDOW = 1024
TILES = TileRows(sliding=32, full=8)
"""Of the released model."""


class SilentBackend:
    """Prepares what a pass on a GPU is told, and computes nothing."""

    device = torch.device("cpu")
    head_rows = 512

    def allocate(self, capacity: int) -> None:
        self._unread_row = capacity

    def warm_up(self, token_budget: int) -> None:
        """Nothing to compile."""

    def run(self, packed: PackedPass, blocks: list[BlockSpan], conditioning: Conditioning | None) -> torch.Tensor:
        wanted = slot_rows(blocks)
        columns = columns_of(
            packed,
            blocks,
            chosen=np.arange(packed.rows) if conditioning is None else canvas_rows(blocks),
            wanted=wanted,
            on_own_token=None if conditioning is None else conditioning.on_own_token,
            window=WINDOW,
            tiles=TILES,
        )
        sizes = columns.sizes
        fill(np.empty(sizes.total, np.int32), sizes, columns, unread_row=self._unread_row)
        return torch.zeros(len(wanted), 1)

    def head(self, hidden: torch.Tensor) -> _Head:
        return _Head(torch.zeros(len(hidden)))

    def soft_embed(self, probabilities: torch.Tensor) -> torch.Tensor:
        return probabilities

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(tokens), 1)


@dataclass(frozen=True)
class _Head:
    log_sums: torch.Tensor

    def logits(self, rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(rows))

    def probabilities(self, temperature: torch.Tensor | None) -> torch.Tensor:
        return self.log_sums[:, None]


def silent_engine(options: Mapping[str, Any], progress: Callable[[str], None]) -> TorchEngine:
    """The loader of an engine process; see `fleet.worker.Loader`."""
    budget = options["settings"]["token_budget"]
    return TorchEngine(SilentBackend(), INFO, token_budget=budget, cache_rows=262_144, request_rows=65_536)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    chosen = parser.parse_args()
    os.environ["OPENJEV_MODEL"] = str(chosen.directory)
    settings = Settings()
    with mock.patch.object(serving, "engine_specs", partial(specs_loaded_by, LOADER)):
        if not engine_devices(settings):
            parser.error("OPENJEV_ENGINES must be at least 1")
        return serving.serve(settings)


if __name__ == "__main__":
    sys.exit(main())
