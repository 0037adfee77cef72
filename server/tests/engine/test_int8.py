"""8-bit products: exact on integers, close on weights, and a row's answer is its own."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.bundle import EMBEDDED_MODEL, load_bundle, resolve_model
from openjev_server.canvas.compile import Compiler, Layout
from openjev_server.canvas.readout import read_out
from openjev_server.engine import int8, loading
from openjev_server.engine.config import ConfigError
from openjev_server.engine.formats import WeightFormat
from openjev_server.engine.int8 import ZERO, Int8Matrix, Int8Rows, probe, to_levels
from openjev_server.engine.matrix import dequantised, expert, linear, stored_bytes, to_int8
from openjev_server.engine.placing import LAYER_MATRICES
from openjev_server.engine.protocol import EngineResult
from openjev_server.engine.torch_engine import TorchEngine
from openjev_server.questions import Choice, Noul, Option, Score

needed = pytest.mark.skipif(probe() is None, reason="this torch has no 8-bit products")
QUESTIONS = (
    Choice("team", "Which team?", (Option("billing", "Payments and refunds"), Option("technical"), Option("sales"))),
    Noul("refund", "Does the customer ask for a refund?"),
    Score("urgency", None, ("can wait", "this week", "today")),
)
STATE = "I was charged twice for my October invoice. Please refund me today."


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@needed
def test_a_weight_is_within_half_a_level() -> None:
    weight = random(3, 40, 600)
    matrix = to_int8(weight)
    assert ((dequantised(matrix, torch.float32) - weight).abs() <= matrix.scale[..., None] * 0.5001).all()
    assert stored_bytes(matrix) == weight.numel() + 4 * 3 * 40


@needed
def test_products_are_those_of_the_integers() -> None:
    x, weight = random(7, 600) * torch.logspace(-6, 6, 7)[:, None], random(2, 40, 600, seed=1)
    x[3] = 0
    matrix = to_int8(weight)
    rows = Int8Rows.of(x)
    restored = (rows.values.double() - ZERO) * rows.scale
    assert ((restored - x).abs() <= rows.scale * 0.501).all()
    for index in range(2):
        expected = restored @ dequantised(matrix, torch.float32)[index].double().T
        found = linear(x, expert(matrix, index)).double()
        assert ((found - expected).abs().amax(1) <= 1e-5 * expected.abs().amax(1)).all()


@needed
def test_the_largest_levels_do_not_overflow() -> None:
    matrix = to_int8(torch.ones(16, 1536))
    assert torch.allclose(linear(torch.ones(3, 1536), matrix), torch.full((3, 16), 1536.0))


@needed
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_does_not_depend_on_the_others(dtype: torch.dtype) -> None:
    matrix, x = to_int8(random(40, 600)), random(90, 600, seed=1).to(dtype)
    x[1:] *= 1000
    assert linear(x, matrix).dtype == dtype
    assert torch.equal(linear(x, matrix)[:1], linear(x[:1], matrix))


@needed
def test_levels_of_a_row_of_zeros() -> None:
    levels, scale = to_levels(torch.zeros(2, 5))
    assert not levels.any()
    assert (scale > 0).all()


@pytest.mark.parametrize("fault", [RuntimeError("not implemented"), AttributeError("no such operator")])
def test_what_torch_lacks_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def failing(*_: object) -> torch.Tensor:
        raise fault

    monkeypatch.setattr(int8, "_packed", failing)
    probe.cache_clear()
    try:
        with pytest.raises(ConfigError, match="leave OPENJEV_WEIGHTS at auto"):
            loading.load_engine(resolve_model(EMBEDDED_MODEL), device="cpu", weights="int8")
    finally:
        probe.cache_clear()


def test_a_gpu_is_refused(directory: Path) -> None:
    with (
        closing(loading.open_checkpoint(directory)) as checkpoint,
        pytest.raises(ConfigError, match="int8 weights need a CPU"),
    ):
        loading.choose_weights(checkpoint, torch.device("cuda"), "int8")


def test_wrong_products_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    product = int8._product
    monkeypatch.setattr(int8, "_product", lambda *arguments: product(*arguments) + 1)
    probe.cache_clear()
    try:
        assert probe() is None
    finally:
        probe.cache_clear()


@pytest.fixture(scope="module")
def directory() -> Path:
    return resolve_model(EMBEDDED_MODEL)


@pytest.fixture(scope="module")
def engine(directory: Path) -> TorchEngine:
    return loading.load_engine(directory, device="cpu", dtype="float32", weights="int8")


@needed
def test_the_first_two_layers_and_what_attention_reads_stay_plain(directory: Path) -> None:
    with closing(loading.open_checkpoint(directory)) as checkpoint:
        cpu, kind = torch.device("cpu"), WeightFormat.INT8
        layers = loading.load_backbone(checkpoint, device=cpu, dtype=torch.float32, weights=kind).weights.layers
    held = {
        (index, name)
        for index, layer in enumerate(layers)
        for name in LAYER_MATRICES
        if isinstance(getattr(layer, name), Int8Matrix)
    }
    matrices = ("output", "gate_up", "down", "expert_gate_up", "expert_down")
    assert held == {(index, name) for index in range(2, 13) for name in matrices}


@needed
def test_the_embedded_checkpoint_says_about_the_same(directory: Path, engine: TorchEngine) -> None:
    plain = loading.load_engine(directory, device="cpu", dtype="float32")
    assert (plain.info.dtype, engine.info.dtype) == ("float32", "int8")
    assert plain.info.weights_hash != engine.info.weights_hash
    bundle = load_bundle(directory)
    compiled = Compiler(bundle.tokenizer, bundle.template).compile(STATE, QUESTIONS, layout=Layout.ISOLATED, steps=2)
    outcomes = [one.run([compiled.request])[0] for one in (plain, engine)]
    first, second = (read_out(compiled, outcome) for outcome in outcomes if isinstance(outcome, EngineResult))
    for one, other in zip(first, second, strict=True):
        assert 0 < np.abs(one - other).max() < 0.1
        assert one.argmax() == other.argmax()


@needed
def test_company_moves_probabilities_by_little(directory: Path, engine: TorchEngine) -> None:
    bundle = load_bundle(directory)
    compiler = Compiler(bundle.tokenizer, bundle.template)
    requests = [
        compiler.compile(f"{number} {STATE}", QUESTIONS, layout=Layout.ISOLATED, steps=2).request for number in range(4)
    ]
    alone = engine.run([replace(requests[0], blocks=requests[0].blocks[:1])])[0]
    packed = engine.run(requests[::-1])[-1]
    assert isinstance(alone, EngineResult)
    assert isinstance(packed, EngineResult)
    # Float32 differs in its last digit by the shape of a product, and that can turn a rounding to a level.
    first, second = (np.exp(result.blocks[0].log_probs) for result in (alone, packed))
    np.testing.assert_allclose(first, second, atol=0.02)
