"""What the engine promises about a batch: order, limits, and that a request fails alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.engine import torch_engine
from openjev_server.engine.loading import load_engine
from openjev_server.engine.protocol import (
    CanvasBlock,
    EngineError,
    EngineRequest,
    EngineResult,
    NonFiniteLogits,
)
from openjev_server.engine.torch_engine import TorchEngine
from random_models import VOCAB, random_block, random_request, save_random

POISON = VOCAB - 1


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random")
    save_random(path)
    return path


@pytest.fixture
def engine(directory: Path) -> TorchEngine:
    return load_engine(directory, device="cpu", dtype="float32")


def make(rng: np.random.Generator, count: int) -> list[EngineRequest]:
    """Requests that never use the token POISON, as text, noise or candidate."""
    requests = []
    for _ in range(count):
        request = random_request(rng, state=9, blocks=[random_block(rng, suffix=4, width=6, slots=1)])
        block = request.blocks[0]
        clean = [np.where(part == POISON, 0, part) for part in (request.state, block.suffix, block.canvases)]
        requests.append(
            EngineRequest(
                clean[0],
                (CanvasBlock(clean[1], clean[2], block.slots, np.array([1, 2], np.int32), np.array([0, 2], np.int32)),),
                2,
            )
        )
    return requests


def test_log_probs_are_over_the_whole_vocabulary(engine: TorchEngine) -> None:
    everything = np.arange(VOCAB, dtype=np.int32)
    block = CanvasBlock(
        everything[:3], everything[None, :5], np.array([2], np.int32), everything, np.array([0, VOCAB], np.int32)
    )
    result = engine.run([EngineRequest(everything[:7], (block,), steps=2)])[0]
    assert isinstance(result, EngineResult)
    np.testing.assert_allclose(np.exp(result.blocks[0].log_probs.astype(np.float64)).sum(-1), 1.0, atol=1e-5)
    assert result.blocks[0].logsumexp.shape == (2, 1, 1)


def test_a_broken_head_refuses_loudly(engine: TorchEngine) -> None:
    engine._backbone.weights.embedding[POISON] = torch.nan
    assert isinstance(engine.run(make(np.random.default_rng(0), 1))[0], NonFiniteLogits)


def test_non_finite_activations_fail_alone(engine: TorchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = engine._backbone
    embed = backbone.embed

    def poisoned(tokens: torch.Tensor) -> torch.Tensor:
        return embed(tokens).masked_fill((tokens == POISON)[:, None], torch.nan)

    requests = make(np.random.default_rng(1), 4)
    expected = engine.run(requests)
    monkeypatch.setattr(backbone, "embed", poisoned)
    requests[2] = EngineRequest(np.full(9, POISON, np.int32), requests[2].blocks, 2)
    results = engine.run(requests)
    assert isinstance(results[2], NonFiniteLogits)
    for number in (0, 1, 3):
        got, want = results[number], expected[number]
        assert isinstance(got, EngineResult)
        assert isinstance(want, EngineResult)
        np.testing.assert_allclose(got.blocks[0].log_probs, want.blocks[0].log_probs, atol=1e-4)


@pytest.mark.parametrize(
    "broken",
    [
        EngineRequest(np.array([VOCAB], np.int32), (), 1),
        EngineRequest(np.array([-1], np.int32), (), 1),
        EngineRequest(np.zeros(0, np.int32), (), 1),
        EngineRequest(np.zeros(3, np.int32), (), 0),
        EngineRequest(np.zeros(4097, np.int32), (), 1),
    ],
    ids=["beyond-the-vocabulary", "negative", "no-state", "no-steps", "too-long"],
)
def test_a_malformed_request_fails_alone(engine: TorchEngine, broken: EngineRequest) -> None:
    good = make(np.random.default_rng(2), 1)[0]
    first, second = engine.run([broken, good])
    assert isinstance(first, EngineError)
    assert isinstance(second, EngineResult)


def test_blocks_without_slots_need_no_model(engine: TorchEngine) -> None:
    block = random_block(np.random.default_rng(3), suffix=4, width=6, slots=0)
    result = engine.run([EngineRequest(np.ones(3, np.int32), (block,), 2)])[0]
    assert isinstance(result, EngineResult)
    assert result.blocks[0].log_probs.shape == (2, 1, 0)


def test_out_of_memory_halves_the_budget_and_loses_nothing(
    engine: TorchEngine, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [
        random_request(
            np.random.default_rng(n),
            state=200,
            blocks=[random_block(np.random.default_rng(n), suffix=20, width=6, slots=1)],
        )
        for n in range(6)
    ]
    expected = engine.run(requests)
    sizes: list[int] = []
    denoise = torch_engine.denoise

    def limited(backbone, packed, plans, prefix):  # type: ignore[no-untyped-def]
        sizes.append(packed.rows)
        if packed.rows > 500:
            raise torch.OutOfMemoryError("pretended")
        return denoise(backbone, packed, plans, prefix)

    monkeypatch.setattr(torch_engine, "denoise", limited)
    for got, want in zip(engine.run(requests), expected, strict=True):
        assert isinstance(got, EngineResult)
        assert isinstance(want, EngineResult)
        np.testing.assert_allclose(got.blocks[0].log_probs, want.blocks[0].log_probs, atol=1e-4)
    assert sizes[0] > 500 >= sizes[-1]


def test_warm_up_runs(engine: TorchEngine) -> None:
    engine.warm_up()
    assert engine.info.device == "cpu"
    assert len(engine.info.weights_hash) == 12
