"""A mixture out of a small dense checkpoint: routers learn, the log says where rows went, the server opens it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.engine.loading import load_engine
from openjev_server.questions import Choice, Option
from openjev_training.backbone import Nano, named_tensors
from openjev_training.checkpoint import write_checkpoint
from openjev_training.device import Runner, to_device
from openjev_training.examples import Example, Labelled, one_hot
from openjev_training.mixture import Routed, balance, shares
from openjev_training.packing import BLOCK, Encoder, pack
from openjev_training.plan import Settings
from openjev_training.train import losses
from openjev_training.upcycle import train_upcycled


@pytest.fixture
def source(tiny: Nano, shipped: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    write_checkpoint(folder, named_tensors(tiny), tiny.arch, shipped, {})
    return folder


def test_the_written_mixture_opens_and_its_log_says_where_rows_went(
    settings: Settings, source: Path, tiny: Nano
) -> None:
    trained = replace(settings, max_steps=4, save_seconds=float("inf"))
    train_upcycled(trained, tiny.arch, seconds=60, source=source)
    engine = load_engine(settings.out, device="cpu", dtype="float32")
    assert engine.info.vocab_size == tiny.arch.vocab
    events = [json.loads(line) for line in (settings.out / "log.jsonl").read_text().splitlines()]
    assert [e["event"] for e in events if e["event"] != "warm"] == ["data", "routing", "end", "routing"]
    before, after = (e for e in events if e["event"] == "routing")
    for routing in (before, after):
        assert np.shape(routing["shares"]) == (tiny.arch.layers, 8)
        np.testing.assert_allclose(np.sum(routing["shares"], 1), 1, atol=5e-3)
        assert all(1 <= effective <= 8 for effective in routing["effective_experts"])
    assert len(after["moved"]) == tiny.arch.layers
    assert before["loss"] != after["loss"]


def test_gradients_reach_every_router(shipped: Path, tiny: Nano) -> None:
    torch.manual_seed(0)
    model = Nano(replace(tiny.arch, experts=4, chosen=2))
    encoder = Encoder.from_directory(shipped)
    question = Choice("q", "Which team?", (Option("billing"), Option("tech"), Option("sales")))
    example = Example("I was charged twice.", (Labelled(question, one_hot(3, 0)),))
    packed, _ = pack([encoder.compile(example)] * 4, 2 * BLOCK, np.random.default_rng(0), encoder)
    loss, parts = losses(
        Runner(model, torch.device("cpu"), compiled=False), to_device(packed, torch.device("cpu")), False, 0.1
    )
    assert "balance" in parts
    (loss - 0.01 * parts["balance"]).backward()
    for layer in model.stack:
        assert layer.mixture is not None
        for parameter in (layer.mixture.router, layer.mixture.scale, layer.mixture.expert_scale):
            assert parameter.grad is not None
            assert parameter.grad.abs().max() > 0


def test_balance_is_one_where_all_is_even_and_more_where_one_expert_takes_all() -> None:
    even = Routed(torch.full((4, 4), 0.25), torch.tensor([[0, 1], [2, 3], [0, 2], [1, 3]]))
    one = Routed(torch.tensor([[1.0, 0, 0, 0]] * 4), torch.tensor([[0], [0], [0], [0]]))
    real = torch.tensor([True, True, True, True])
    assert float(balance(even, real)) == pytest.approx(1)
    assert float(balance(one, real)) == pytest.approx(4)
    padded = shares(even, torch.tensor([True, False, False, False]))
    assert padded.tolist() == [0.5, 0.5, 0, 0]
