"""Training, packed, says what the server says about the checkpoint that training wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from openjev_server.canvas.compile import Compiler
from openjev_server.canvas.readout import read_out
from openjev_server.canvas.templates import NANO_LABEL
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.engine.loading import load_engine
from openjev_server.engine.quantised import FILE_NAME
from openjev_server.questions import Choice, Noul, Option, Question, Score, Text
from openjev_training.architecture import Architecture
from openjev_training.backbone import Nano, load_named_tensors, named_tensors
from openjev_training.checkpoint import write_checkpoint
from openjev_training.device import Runner, to_device
from openjev_training.examples import Example, Labelled, one_hot
from openjev_training.packing import BLOCK, Encoder, pack
from openjev_training.quantise import quantised
from safetensors.torch import save_file

QUESTIONS: tuple[Question, ...] = (
    Noul("a", "Is it urgent?", "needs an answer today", None),
    Choice("b", "Which team?", (Option("billing"), Option("tech", "bugs"), Option("sales"))),
    Score("c", "How happy?", ("sad", "neutral", "happy")),
)
STATES: tuple[Text, ...] = ("I was charged twice.", {"subject": "broken", "body": "the app crashes"})


def _example(state: Text) -> Example:
    items = tuple(Labelled(q, one_hot(n, 0)) for q, n in zip(QUESTIONS, (2, 3, 3), strict=True))
    return Example(state, items)


def test_packed_training_pass_equals_the_engine(tiny: Nano, shipped: Path, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, named_tensors(tiny), tiny.arch, shipped, {})
    with quantised(tiny):
        _assert_same(tiny, tmp_path)


def test_a_mixture_in_training_equals_the_engine(shipped: Path, tmp_path: Path) -> None:
    """Random routers and expert scales; the last layer is a full one."""
    torch.manual_seed(5)
    arch = Architecture(hidden=64, layers=3, heads=2, kv_heads=1, head_dim=32, feed_forward=64, experts=8, chosen=2)
    model = Nano(arch).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.mul_(1 + 0.2 * torch.randn_like(p))
    write_checkpoint(tmp_path, named_tensors(model), arch, shipped, {})
    (tmp_path / FILE_NAME).unlink()
    save_file(named_tensors(model), tmp_path / "model.safetensors", metadata={"format": "pt"})
    _assert_same(model, tmp_path)
    again = Nano(arch)
    load_named_tensors(again, named_tensors(model))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))


def _assert_same(model: Nano, folder: Path) -> None:
    """The second step's probabilities of every slot, in training's packed pass and in the server's engine."""
    engine = load_engine(folder, device="cpu", dtype="float32")
    compiler = Compiler(TextTokenizer.from_directory(folder), NANO_LABEL)
    encoder = Encoder.from_directory(folder, state_limit=None)
    batch, left = pack([encoder.compile(_example(s)) for s in STATES], 4 * BLOCK, np.random.default_rng(0), encoder)
    assert not left
    wanted: list[None] = []
    for state in STATES:
        compiled = compiler.compile(state, QUESTIONS, steps=2)
        for block in compiled.request.blocks:  # the same noise on both sides
            batch.ids[batch.slots[len(wanted)]] = block.canvases[0, block.slots[0]]
            wanted.append(None)
    steps = Runner(model, torch.device("cpu"), compiled=False).steps(to_device(batch, torch.device("cpu")), 2)
    row = 0
    for state in STATES:
        compiled = compiler.compile(state, QUESTIONS, steps=2)
        (result,) = engine.run([compiled.request])
        assert not isinstance(result, Exception)
        for found in read_out(compiled, result):
            np.testing.assert_allclose(steps[1][row, : len(found)].exp().numpy(), found, atol=2e-5)
            row += 1
    assert row == batch.count


def test_tiles_hold_every_visible_key(tiny: Nano, shipped: Path) -> None:
    encoder = Encoder.from_directory(shipped)
    batch, _ = pack([encoder.compile(_example(s)) for s in STATES * 4], 8 * BLOCK, np.random.default_rng(0), encoder)
    runner = Runner(tiny, torch.device("cpu"), compiled=False)
    visible = runner.mask(to_device(batch, torch.device("cpu"))).numpy()
    tiles = visible.reshape(8, BLOCK, 8, BLOCK).any((1, 3))
    for q in range(8):
        seen = np.flatnonzero(tiles[q])
        assert batch.first_tile[q] <= seen.min()
        assert seen.max() <= batch.last_tile[q]
    assert visible.any(1).all()
