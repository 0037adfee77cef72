"""A tiny model, the shipped tokenizer, and a run on a handful of rows."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import openjev_server
import pytest
import torch
from openjev_training.architecture import Architecture
from openjev_training.backbone import Nano
from openjev_training.plan import Settings

TINY = Architecture(hidden=64, layers=3, heads=2, kv_heads=1, head_dim=32, feed_forward=64, expert=32)


@pytest.fixture(scope="session")
def shipped() -> Path:
    return Path(openjev_server.__file__).parent / "models" / "nano"


@pytest.fixture(scope="session")
def tiny() -> Nano:
    torch.manual_seed(3)
    model = Nano(TINY).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.mul_(1 + 0.2 * torch.randn_like(p))
                p.copy_(p.half())  # as the checkpoint stores it
    return model


@pytest.fixture
def settings(tmp_path: Path, shipped: Path) -> Settings:
    rows = [
        [True, "t", "choice", f"state {i}", "Which?", ["a b", "c d", "e f"], [None] * 3, i % 3, None] for i in range(60)
    ]
    texts = [["x", "The market opens early. Nobody came today. It rained a lot."]] * 4
    for name, lines in (("rows", rows), ("texts", texts), ("measures", [])):
        with lzma.open(tmp_path / f"{name}.jsonl.xz", "wt", preset=0) as out:
            out.writelines(json.dumps(line) + "\n" for line in lines)
    return Settings(
        tmp_path, shipped, None, tmp_path / "out", "cpu", 512, 0, compiled=False, save_seconds=0, max_steps=3
    )
