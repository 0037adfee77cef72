"""The 408-question replay in its tiny form, and the shapes it replays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.canvas.compile import Layout
from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.protocol import EngineResult
from openjev_server.questions import Noul

from benchmarks import released, replay408
from benchmarks.floors import floor_of, row_flops, weight_bytes
from benchmarks.shapes import load
from benchmarks.stock import run_stock
from benchmarks.text import Text
from benchmarks.workload import grouped_requests, isolated_requests, request

# transformers' generate imports torch._inductor, and that a deprecated decorator.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", ["rule", "billed"])
def test_the_committed_shapes_are_the_seeds(name: str) -> None:
    shapes = load(name)
    assert len(shapes.cases) == 20
    assert sum(len(case.nodes) for case in shapes.cases) == 46
    assert sum(case.questions for case in shapes.cases) == 408
    assert (len(shapes.prompts), sum(shapes.prompts)) == (56, 300_431)


def test_the_shapes_hold_the_recorded_questions() -> None:
    recorded = Path(__file__).parents[2] / "fixtures/seed/public_evals_1step.jsonl"
    ids = [json.loads(line)["id"].removeprefix("public-evals/") for line in recorded.read_text().splitlines()]
    asked: dict[str, int] = {}
    for question in ids:
        node = question.rpartition("/")[0]
        asked[node] = asked.get(node, 0) + 1
    assert asked == {node.id: len(node.options) for case in load().cases for node in case.nodes}


def test_requests_have_the_shapes_tokens() -> None:
    shapes = load()
    grouped = grouped_requests(shapes, np.random.default_rng(0), 4096, steps=2)
    assert sum(len(r.state) + len(b.suffix) for r in grouped for b in r.blocks) == 300_431
    assert {b.canvases.shape for r in grouped for b in r.blocks} == {(1, 256)}
    isolated = isolated_requests(shapes, np.random.default_rng(0), 4096, width=32, steps=2)
    assert sum(len(r.blocks) for r in isolated) == 408


def test_every_row_is_measured_and_kept(tmp_path: Path) -> None:
    out = tmp_path / "replay.json"
    arguments = ["--tiny", "--device", "cpu", "--runs", "1", "--rows", "a,b,c,d,f", "--json", str(out)]
    assert replay408.main(arguments) == 0
    rows = json.loads(out.read_text())["rows"]
    assert list(rows) == ["a", "b", "c", "d", "f"]
    assert all(row["seconds"]["median"] > row["floor_s"] for row in rows.values())
    assert rows["a"]["out_of_memory_at"] == []


def test_the_batch_halves_when_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import stock

    sizes: list[int] = []

    def generate(_model: object, batch: list[object]) -> None:
        sizes.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError

    monkeypatch.setattr(stock, "_generate", generate)
    model = released.stock_model(released.configuration(tiny=True), _tensors(), device=CPU, dtype=torch.float32)
    rng = np.random.default_rng(0)
    done = run_stock(model, [request(rng, 4096, state=n, questions=1) for n in range(5, 10)], first_batch=8)
    assert (done.failures, sizes) == ((5, 4), [5, 4, 2, 2, 1])
    assert [count for count, _, _ in done.batches] == [2, 2, 1]


def test_the_engine_shares_the_stock_models_memory() -> None:
    raw = released.configuration(tiny=True)
    model = released.stock_model(raw, _tensors(), device=CPU, dtype=torch.float32)
    places = {tensor.data_ptr() for _, tensor in released.tensors_of(model, raw)}
    engine = released.open_engine(raw, released.tensors_of(model, raw), device="cpu", dtype="float32")
    assert model.lm_head.weight.data_ptr() in places
    assert isinstance(engine.run([request(np.random.default_rng(0), 4096, state=9, questions=2)])[0], EngineResult)
    with pytest.raises(ValueError, match="nonsense"):
        released.open_engine(raw, [], nonsense=True)


def test_touched_experts_grow_with_the_rows() -> None:
    raw = released.configuration(tiny=True)
    model = released.stock_model(raw, _tensors(), device=CPU, dtype=torch.float32)
    touched = released.experts_touched(model, rows=64)
    assert touched[1] == [2, 2]
    assert all(few <= many for few, many in zip(touched[8], touched[64], strict=True))


def test_floors_of_the_released_architecture() -> None:
    config = BackboneConfig.from_dict(released.configuration())
    assert row_flops(config) / 1e9 == pytest.approx(6.17, abs=0.01)
    assert weight_bytes(config, [128] * 30) / 1e9 == pytest.approx(50.47, abs=0.01)
    rng = np.random.default_rng(0)
    one = request(rng, config.vocab_size, state=2000, questions=1, steps=1)
    floor = floor_of(config, [one])
    assert floor.rows == 2000 + 40 + 32
    # Causal in 5 full layers, windowed in 25: 2040 tokens, then 32 canvas rows that see all, or 1023 and themselves.
    full = 2040 * 2041 // 2 + 32 * (2040 + 32)
    sliding = 1024 * 1025 // 2 + (2040 - 1024) * 1024 + 32 * (1023 + 32)
    assert floor.attention_flops == 4 * 16 * (5 * 512 * full + 25 * 256 * sliding)
    both = [one, one]
    assert floor_of(config, both).rows == 2000 + 2 * 72
    assert floor_of(config, both, share_states=False).rows == 2 * (2000 + 72)


def test_texts_have_the_tokens_they_claim() -> None:
    text = Text(seed=3)
    for state, suffix in ((20, 40), (700, 60)):
        question = Noul("q", text.noul(suffix)["instructions"])
        compiled = text.compiler.compile(text.state(state), [question], layout=Layout.ISOLATED).request
        assert (len(compiled.state), len(compiled.blocks[0].suffix)) == (state, suffix)
        assert compiled.blocks[0].canvases.shape == (1, 32)


def _tensors() -> list[tuple[str, torch.Tensor]]:
    return list(released.random_tensors(released.configuration(tiny=True), device=CPU, dtype=torch.float32))
