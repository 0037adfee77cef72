"""A tiny model and the shipped tokenizer."""

from __future__ import annotations

from pathlib import Path

import openjev_server
import pytest
import torch
from openjev_training.architecture import Architecture
from openjev_training.backbone import Nano

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
