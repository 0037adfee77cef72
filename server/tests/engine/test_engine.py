"""What the engine promises about a batch: order, limits, and that a request fails alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.engine import torch_engine
from openjev_server.engine.assemble import assemble, row_bytes
from openjev_server.engine.backbone import Backbone
from openjev_server.engine.loading import load_backbone, open_checkpoint
from openjev_server.engine.protocol import (
    CanvasBlock,
    EngineError,
    EngineInfo,
    EngineRequest,
    EngineResult,
    NonFiniteLogits,
)
from openjev_server.engine.torch_engine import TorchEngine
from random_models import VOCAB, random_block, random_request, save_random

POISON = VOCAB - 1
INFO = EngineInfo(weights_hash="0" * 12, dtype="float32", device="cpu", vocab_size=VOCAB, max_positions=4096)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random")
    save_random(path)
    return path


@pytest.fixture
def backbone(directory: Path) -> Backbone:
    with closing(open_checkpoint(directory)) as checkpoint:
        return load_backbone(checkpoint, device=torch.device("cpu"), dtype=torch.float32)


@pytest.fixture
def engine(backbone: Backbone) -> TorchEngine:
    return assemble(backbone, INFO, token_budget=8192)


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


def test_a_broken_head_refuses_loudly(engine: TorchEngine, backbone: Backbone) -> None:
    backbone.weights.embedding[POISON] = torch.nan
    assert isinstance(engine.run(make(np.random.default_rng(0), 1))[0], NonFiniteLogits)


def test_non_finite_activations_fail_alone(
    engine: TorchEngine, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    engine: TorchEngine, monkeypatch: pytest.MonkeyPatch
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
    engine.forget_states()
    sizes: list[int] = []
    denoise = torch_engine.denoise

    def limited(backend, packed, plans):  # type: ignore[no-untyped-def]
        sizes.append(packed.rows)
        if packed.rows > 500:
            raise torch.OutOfMemoryError("pretended")
        return denoise(backend, packed, plans)

    monkeypatch.setattr(torch_engine, "denoise", limited)
    for got, want in zip(engine.run(requests), expected, strict=True):
        assert isinstance(got, EngineResult)
        assert isinstance(want, EngineResult)
        np.testing.assert_allclose(got.blocks[0].log_probs, want.blocks[0].log_probs, atol=1e-4)
    assert sizes[0] > 500 >= sizes[-1]
    assert max(sizes) > 500
    assert sizes[-1] <= 500


def test_warm_up_runs(engine: TorchEngine) -> None:
    engine.warm_up()
    assert engine.info.device == "cpu"
    assert len(engine.info.weights_hash) == 12


def close(got: EngineResult | EngineError, want: EngineResult | EngineError) -> None:
    assert isinstance(got, EngineResult)
    assert isinstance(want, EngineResult)
    for one, other in zip(got.blocks, want.blocks, strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)


@pytest.fixture
def rows_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each pass had."""
    sizes: list[int] = []
    denoise = torch_engine.denoise

    def counted(backend, packed, plans):  # type: ignore[no-untyped-def]
        sizes.append(packed.rows)
        return denoise(backend, packed, plans)

    monkeypatch.setattr(torch_engine, "denoise", counted)
    return sizes


def about(rng: np.random.Generator, state: np.ndarray, blocks: int = 1) -> EngineRequest:
    return EngineRequest(state, tuple(random_block(rng, suffix=4, width=6, slots=1) for _ in range(blocks)), 2)


def test_a_cached_state_is_not_computed_again_and_changes_nothing(engine: TorchEngine, rows_run: list[int]) -> None:
    rng = np.random.default_rng(4)
    state = rng.integers(0, VOCAB, 70, dtype=np.int32)
    request = about(rng, state)
    (cold,), (warm,) = engine.run([request]), engine.run([request])
    assert rows_run == [80, 10]
    close(warm, cold)


def test_a_growing_state_pays_for_what_was_appended(engine: TorchEngine, rows_run: list[int]) -> None:
    rng = np.random.default_rng(5)
    state = rng.integers(0, VOCAB, 200, dtype=np.int32)
    lengths = (70, 103, 200)
    requests = [about(rng, state[:length]) for length in lengths]
    grown = [engine.run([request])[0] for request in requests]
    assert rows_run == [80, 43, 107]
    for request, result in zip(requests, grown, strict=True):
        engine.forget_states()
        close(result, engine.run([request])[0])


def test_requests_about_one_state_share_its_rows_in_a_pass(engine: TorchEngine, rows_run: list[int]) -> None:
    rng = np.random.default_rng(6)
    state = rng.integers(0, VOCAB, 70, dtype=np.int32)
    requests = [about(rng, state.copy(), 2), about(rng, state.copy())]
    together = engine.run(requests)
    assert rows_run == [100]
    for request, result in zip(requests, together, strict=True):
        engine.forget_states()
        close(result, engine.run([request])[0])


def test_no_request_reads_another_ones_state(engine: TorchEngine, backbone: Backbone) -> None:
    """States that agree for a while and then differ; every row of a dropped or foreign state is made NaN."""
    rng = np.random.default_rng(7)
    common = rng.integers(0, VOCAB, 64, dtype=np.int32)
    states = [np.concatenate([common, rng.integers(0, VOCAB, 40, dtype=np.int32)]) for _ in range(4)]
    requests = [about(rng, state) for state in states]
    alone = []
    for request in requests:
        engine.forget_states()
        alone.append(engine.run([request])[0])
    for result, want in zip(engine.run(requests), alone, strict=True):
        close(result, want)
    engine.forget_states()
    engine.run(requests[:1])
    used = set(engine._cache.find(states[0]).tolist())
    for layer in engine._backend._pool:  # type: ignore[attr-defined]
        foreign = [row for row in range(len(layer.keys)) if row not in used]
        layer.keys[foreign] = layer.values[foreign] = torch.nan
    for request, want in zip(requests, alone, strict=True):
        close(engine.run([request])[0], want)


def test_a_full_pool_drops_cached_states_then_waits(backbone: Backbone) -> None:
    """A pool for one long request: everything still comes out, in more passes."""
    rng = np.random.default_rng(8)
    requests = [about(rng, rng.integers(0, VOCAB, 90, dtype=np.int32), 6) for _ in range(8)]
    roomy = assemble(backbone, INFO, token_budget=8192).run(requests)
    small = assemble(backbone, INFO, token_budget=40, cache_bytes=100 * row_bytes(backbone.config, torch.float32))
    for result, want in zip(small.run(requests), roomy, strict=True):
        close(result, want)
    assert small._pool.capacity < 90 * 3
    assert small.cached_states <= 1


def test_rows_come_back(backbone: Backbone) -> None:
    rng = np.random.default_rng(9)
    engine = assemble(backbone, INFO, token_budget=64)
    requests = [about(rng, rng.integers(0, VOCAB, 90, dtype=np.int32), 3) for _ in range(5)]
    tickets = [engine.begin(request) for request in requests]
    engine.advance()
    engine.abandon(tickets[0])
    engine.abandon(tickets[3])
    while engine._waiting:
        engine.advance()
    engine.forget_states()
    assert engine._pool.free == engine._pool.capacity


def test_a_request_larger_than_the_pool_is_refused(backbone: Backbone) -> None:
    rng = np.random.default_rng(10)
    engine = assemble(backbone, INFO, token_budget=32, cache_bytes=0)
    (result,) = engine.run([about(rng, rng.integers(0, VOCAB, 2000, dtype=np.int32))])
    assert isinstance(result, EngineError)
    assert "rows of the key pool" in str(result)
