"""Training with tiny shapes on the CPU: plans, stopping and going on, and a start that inherits nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.engine.quantised import FILE_NAME
from openjev_training import train as training
from openjev_training.architecture import Architecture
from openjev_training.backbone import Nano
from openjev_training.plan import Phase, Settings, read_plan
from openjev_training.progress import FINISHED, Progress, load_progress, save_progress
from openjev_training.train import rate_at, train
from openjev_training.warm_start import load_warm_start

SMALL = Architecture(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, feed_forward=64, expert=32)


def _events(settings: Settings) -> Iterator[dict[str, object]]:
    yield from map(json.loads, (settings.out / "log.jsonl").read_text().splitlines())


def test_a_stopped_run_goes_on_and_a_finished_phase_is_not_trained_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = [
        Phase("one", millions=1, measure=False),
        Phase("two", seconds=60, start="continue", measure=False, quantised_tail=1),
    ]
    real, calls = training.losses, iter(range(100))

    def stops(*args: object) -> object:
        if next(calls) == 4:
            raise KeyboardInterrupt
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "losses", stops)
    with pytest.raises(KeyboardInterrupt):
        train(settings, phases, SMALL)
    assert (settings.out / "one" / FINISHED).is_file()
    assert (settings.out / "two" / "progress.pt").is_file()
    train(settings, phases, SMALL)
    events = list(_events(settings))
    assert [(e["phase"], e["step"]) for e in events if e["event"] == "resumed"] == [("two", 1)]
    assert [e["phase"] for e in events if e["event"] == "skipped"] == ["one"]
    assert [(e["phase"], e["step"]) for e in events if e["event"] == "end"] == [("one", 3), ("two", 3)]
    assert not (settings.out / "two" / "progress.pt").exists()
    assert (settings.out / "two" / FILE_NAME).is_file()


def test_a_second_warm_phase_starts_where_the_first_did(settings: Settings) -> None:
    """Parameters without a source were once inherited: a baseline trained last had learned from the runs before it."""
    phases = [Phase("one", millions=1, measure=False, rate=1.0), Phase("two", millions=1, measure=False)]
    train(replace(settings, max_steps=1), phases[1:], SMALL)
    train(replace(settings, max_steps=1, out=settings.out / "both"), phases, SMALL)
    alone, after = (torch.load(settings.out / name / FINISHED, weights_only=True) for name in ("two", "both/two"))
    # Adam's first step moves a parameter by the rate: 1/60 of 5e-4, threefold where there is no source.
    assert max(float((alone[k] - after[k]).abs().max()) for k in alone) < 2.5 * 3 * 5e-4 / 60


def test_progress_comes_back_with_the_optimizer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, other = Nano(SMALL), Nano(SMALL)
    optimizer, second = torch.optim.AdamW(model.parameters()), torch.optim.AdamW(other.parameters())
    model.norm.sum().backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    assert load_progress(tmp_path / "p.pt", other, second) == Progress()
    save_progress(tmp_path / "p.pt", Progress(7, 900, 1.5), model, optimizer)
    assert load_progress(tmp_path / "p.pt", other, second) == Progress(7, 900, 1.5)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))
    assert torch.equal(optimizer.state[model.norm]["exp_avg"], second.state[other.norm]["exp_avg"])
    assert not (tmp_path / "p.part").exists()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"name": "a"}, "either seconds or millions"),
        ({"name": "a", "seconds": 1, "millions": 1}, "either seconds or millions"),
        ({"name": "a", "seconds": 1, "start": "cold"}, "start is warm or continue"),
        ({"name": "a", "seconds": 1, "mixture": "soup"}, "mixture is one of"),
    ],
)
def test_a_phase_that_cannot_be_is_refused(tmp_path: Path, raw: dict[str, object], message: str) -> None:
    (tmp_path / "plan.json").write_text(json.dumps([raw]))
    with pytest.raises(ValueError, match=message):
        read_plan(tmp_path / "plan.json")


def test_the_committed_plans_are_plans() -> None:
    for path in (Path(__file__).parents[1] / "plans").glob("*.json"):
        assert read_plan(path)


def test_the_rate_warms_up_and_falls_to_a_fiftieth() -> None:
    assert rate_at(0, 0) == pytest.approx(1 / 60)
    assert rate_at(0, 500) == pytest.approx(1)
    assert rate_at(1, 500) == pytest.approx(0.02)
    assert rate_at(2, 500) == pytest.approx(0.02)


def test_the_warm_start_keeps_the_source_function_of_an_mlp(tmp_path: Path) -> None:
    """Matrices come out of their Q4_1 blocks; a norm's scale moves into its readers without changing the product."""
    rng = np.random.default_rng(0)
    shapes = {"gate": (64, 64), "up": (64, 64), "down": (64, 64), "q": (64, 64), "k": (32, 64), "v": (32, 64)}
    arrays = {"emb.q": np.ones((16384, 64), np.int8), "emb.s": np.ones((16384, 1), np.float32)}
    arrays |= {"norm": np.ones(64, np.float32), "n": np.array(1)}
    for layer in range(2):
        for name, (rows, columns) in (shapes | {"o": (64, 64)}).items():
            blocks = rng.integers(0, 256, (rows * columns // 32, 20), dtype=np.uint8)
            blocks[:, :4] = np.array([0.25, -1.5], np.float16).view(np.uint8)
            arrays[f"{layer}.{name}"] = blocks.reshape(-1)
        for name in ("n_in", "n_pre"):
            arrays[f"{layer}.{name}"] = np.full(64, 0.001, np.float32)
        for name, heads in (("Rq", 2), ("Rk", 1), ("Rv", 1), ("Ro", 1), ("Rd", 1)):
            arrays[f"{layer}.{name}"] = np.full(heads if name not in {"Ro", "Rd"} else (), 2.0, np.float32)
    np.savez(tmp_path / "warm.npz", **arrays)  # type: ignore[arg-type]
    model = Nano(SMALL)
    load_warm_start(model, tmp_path / "warm.npz")
    block = arrays["0.gate"].reshape(-1, 20)[0]
    first = (np.concatenate([block[4:] & 15, block[4:] >> 4]) * 0.25 - 1.5) * 0.001
    layer = model.stack[0]
    np.testing.assert_allclose((layer.gate.weight * layer.n_mlp)[0, :32].detach().numpy(), first, rtol=1e-3, atol=1e-7)
    assert float(layer.n_in.detach().pow(2).mean()) == pytest.approx(1)
    assert float(layer.down.weight.detach().pow(2).mean()) == pytest.approx(1 / 64)
