"""The embedded checkpoint through compiler and engine, against transformers' class holding the same weights."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from openjev_server.canvas.compile import Compiler, Layout
from openjev_server.canvas.readout import read_out
from openjev_server.canvas.templates import template_for
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.engine.loading import load_engine, open_checkpoint, read_tensors
from openjev_server.engine.protocol import EngineResult, SelfConditioning
from openjev_server.engine.torch_engine import TorchEngine
from openjev_server.questions import Choice, Noul, Option, Question, Score
from random_models import reference
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

EMBEDDED = Path(__file__).parents[2] / "openjev_server/models/nano"
STATE = {"ticket": "I was charged twice for my October invoice and nobody answers. Please refund me today.", "age": 39}
QUESTIONS: list[Question] = [
    Choice(
        "team",
        "Which team should handle this?",
        (
            Option("billing", "Payments, invoices and refunds"),
            Option("technical"),
            Option("sales", {"covers": ["plans"]}),
        ),
    ),
    Noul("refund", "Does the customer ask for a refund?", true="money back is asked for"),
    Score("urgency", None, ("can wait", "this week", "today")),
]


@pytest.fixture(scope="module")
def stock() -> DiffusionGemmaForBlockDiffusion:
    config = json.loads((EMBEDDED / "config.json").read_text())
    model = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**config)).eval()
    with closing(open_checkpoint(EMBEDDED)) as checkpoint:
        loaded = model.load_state_dict(dict(read_tensors(checkpoint)), strict=False)
    assert not loaded.unexpected_keys
    model.tie_weights()
    return model


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return load_engine(EMBEDDED, device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    tokenizer = TextTokenizer.from_directory(EMBEDDED)
    return Compiler(tokenizer, template_for(tokenizer))


@pytest.mark.parametrize("conditioning", [SelfConditioning.SLOTS, SelfConditioning.FULL])
@pytest.mark.parametrize("layout", list(Layout))
def test_embedded_parity(
    engine: TorchEngine,
    compiler: Compiler,
    stock: DiffusionGemmaForBlockDiffusion,
    layout: Layout,
    conditioning: SelfConditioning,
) -> None:
    compiled = compiler.compile(STATE, QUESTIONS, layout=layout, steps=2, replicas=2)
    request = replace(compiled.request, self_conditioning=conditioning)
    result = engine.run([request])[0]
    assert isinstance(result, EngineResult)
    for block, answer in zip(request.blocks, result.blocks, strict=True):
        for replica in range(2):
            for step, expected in enumerate(reference(stock, request, block, replica)):
                np.testing.assert_allclose(answer.log_probs[step, replica], expected.numpy(), atol=1e-4)


def test_the_embedded_checkpoint_reads(engine: TorchEngine, compiler: Compiler) -> None:
    compiled = compiler.compile(STATE, QUESTIONS, layout=Layout.ISOLATED, steps=2, replicas=1)
    result = engine.run([compiled.request])[0]
    assert isinstance(result, EngineResult)
    team, _, urgency = read_out(compiled, result)
    assert team.argmax() == 0
    assert urgency.argmax() != 0


def test_bfloat16_says_about_the_same(engine: TorchEngine, compiler: Compiler) -> None:
    half = load_engine(EMBEDDED, device="cpu", dtype="bfloat16")
    assert half.info.dtype == "bfloat16"
    compiled = compiler.compile(STATE, QUESTIONS, layout=Layout.ISOLATED, steps=2, replicas=1)
    outcomes = [run.run([compiled.request])[0] for run in (engine, half)]
    first, second = (read_out(compiled, outcome) for outcome in outcomes if isinstance(outcome, EngineResult))
    for one, other in zip(first, second, strict=True):
        assert np.abs(one - other).max() < 0.15
