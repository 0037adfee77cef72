"""Our packed forward against transformers' DiffusionGemmaForBlockDiffusion, fp32, on a small random checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from openjev_server.engine.loading import load_engine
from openjev_server.engine.protocol import EngineRequest, EngineResult, SelfConditioning
from openjev_server.engine.torch_engine import TorchEngine
from random_models import random_block, random_redraw, random_request, reference, save_random
from transformers import DiffusionGemmaForBlockDiffusion

TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DiffusionGemmaForBlockDiffusion]:
    directory = tmp_path_factory.mktemp("random")
    return directory, save_random(directory)


@pytest.fixture(scope="module")
def engine(checkpoint: tuple[Path, DiffusionGemmaForBlockDiffusion]) -> TorchEngine:
    return load_engine(checkpoint[0], device="cpu", dtype="float32")


def check(model: DiffusionGemmaForBlockDiffusion, request: EngineRequest, result: object) -> None:
    assert isinstance(result, EngineResult)
    for block, answer in zip(request.blocks, result.blocks, strict=True):
        for replica in range(block.canvases.shape[0]):
            for step, expected in enumerate(reference(model, request, block, replica)):
                np.testing.assert_allclose(answer.log_probs[step, replica], expected.numpy(), atol=TOLERANCE)


@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("state", [3, 40], ids=["short", "longer-than-the-window"])
def test_isolated_blocks_equal_one_question_per_sequence(
    engine: TorchEngine, checkpoint: tuple[Path, DiffusionGemmaForBlockDiffusion], state: int, steps: int
) -> None:
    rng = np.random.default_rng(state + steps)
    blocks = [random_block(rng, suffix=n, width=5 + n % 3, slots=1 + n % 2) for n in (4, 9, 17)]
    request = random_request(rng, state=state, blocks=blocks, steps=steps)
    check(checkpoint[1], request, engine.run([request])[0])


@pytest.mark.parametrize("conditioning", list(SelfConditioning))
def test_a_shared_canvas_with_many_slots_equals_the_whole_canvas(
    engine: TorchEngine, checkpoint: tuple[Path, DiffusionGemmaForBlockDiffusion], conditioning: SelfConditioning
) -> None:
    rng = np.random.default_rng(5)
    block = random_block(rng, suffix=30, width=24, slots=9)
    request = random_request(rng, state=21, blocks=[block], self_conditioning=conditioning)
    check(checkpoint[1], request, engine.run([request])[0])


@pytest.mark.parametrize("bound", [0.1, 1.5, 100.0], ids=["few", "some", "all"])
def test_redrawn_slots_and_temperatures_equal_transformers_sampler(
    engine: TorchEngine, checkpoint: tuple[Path, DiffusionGemmaForBlockDiffusion], bound: float
) -> None:
    rng = np.random.default_rng(8)
    block = random_block(rng, suffix=12, width=20, slots=6, replicas=2)
    drawn = replace(block, redraw=random_redraw(rng, block, 3, entropy_bound=bound))
    request = replace(
        random_request(rng, state=14, blocks=[drawn, block], steps=3, self_conditioning=SelfConditioning.ALLOWED),
        temperatures=(0.8, 0.6),
    )
    result = engine.run([request])[0]
    check(checkpoint[1], request, result)
    assert isinstance(result, EngineResult)
    kept = result.blocks[1].log_probs
    assert np.abs(result.blocks[0].log_probs[0] - kept[0]).max() < TOLERANCE
    assert np.abs(result.blocks[0].log_probs[1] - kept[1]).max() > 100 * TOLERANCE


def test_noise_replicas_do_not_see_each_other(
    engine: TorchEngine, checkpoint: tuple[Path, DiffusionGemmaForBlockDiffusion]
) -> None:
    rng = np.random.default_rng(6)
    request = random_request(rng, state=15, blocks=[random_block(rng, suffix=6, width=7, slots=2, replicas=3)])
    check(checkpoint[1], request, engine.run([request])[0])


@pytest.mark.parametrize("budget", [8192, 64, 20], ids=["one-pass", "several-passes", "chunked-prefill"])
def test_a_mixed_batch_equals_each_request_alone(
    checkpoint: tuple[Path, DiffusionGemmaForBlockDiffusion], budget: int
) -> None:
    engine = load_engine(checkpoint[0], device="cpu", dtype="float32", token_budget=budget)
    rng = np.random.default_rng(budget)
    requests = [
        random_request(
            rng,
            state=int(rng.integers(1, 50)),
            blocks=[random_block(rng, suffix=int(rng.integers(0, 12)), width=6, slots=s) for s in (1, 0, 2, 1)],
            steps=1 + n % 3,
        )
        for n in range(5)
    ]
    for request, result in zip(requests, engine.run(requests), strict=True):
        used = [number for number, block in enumerate(request.blocks) if len(block.slots)]
        assert isinstance(result, EngineResult)
        kept = EngineRequest(request.state, tuple(request.blocks[n] for n in used), request.steps)
        check(checkpoint[1], kept, EngineResult(tuple(result.blocks[n] for n in used)))


def test_a_question_does_not_notice_the_others(engine: TorchEngine) -> None:
    rng = np.random.default_rng(11)
    first, second, third = (random_block(rng, suffix=n, width=6, slots=1) for n in (5, 8, 3))
    together = random_request(rng, state=30, blocks=[first, second, third])
    alone = EngineRequest(together.state, (second,), together.steps)
    moved = EngineRequest(together.state, (third, second), together.steps)
    results = [engine.run([request])[0] for request in (together, alone, moved)]
    kept = [r.blocks[n].log_probs for r, n in zip(results, (1, 0, 1), strict=True) if isinstance(r, EngineResult)]
    np.testing.assert_allclose(kept[0], kept[1], atol=TOLERANCE)
    np.testing.assert_allclose(kept[0], kept[2], atol=TOLERANCE)
