"""The correctness check finds what is wrong, and nothing where nothing is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.engine.loading import load_engine
from openjev_server.engine.protocol import Engine, EngineError, EngineInfo, EngineRequest, EngineResult
from openjev_training.upcycle import upcycle

from benchmarks import checks, gpu_check, released
from benchmarks.workload import request
from benchmarks.write_checkpoint import write_checkpoint

SMALL = ["--device", "cpu", "--dtype", "float32", "--compare", "4", "--packed", "8", "--soak", "5", "--longest", "100"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tiny") / "checkpoint"
    raw = released.configuration(tiny=True)
    write_checkpoint(directory, raw, device=torch.device("cpu"), dtype=torch.float32)
    return directory


@pytest.fixture(scope="module")
def engine(checkpoint: Path) -> Engine:
    return load_engine(checkpoint, device="cpu", dtype="float32")


class Distorted:
    """An engine whose answers are changed on the way."""

    def __init__(self, engine: Engine, factor: float, lonely: float = 0.0) -> None:
        self._engine = engine
        self._factor = factor
        self._lonely = lonely

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    def run(self, requests: Sequence[EngineRequest]) -> list[EngineResult | EngineError]:
        outcomes: list[EngineResult | EngineError] = []
        for outcome in self._engine.run(requests):
            assert isinstance(outcome, EngineResult)
            blocks = []
            for block in outcome.blocks:
                log_probs = block.log_probs * np.float32(self._factor)
                log_probs[..., 0] += self._lonely if len(requests) == 1 else 0.0
                blocks.append(replace(block, log_probs=log_probs))
            outcomes.append(EngineResult(tuple(blocks)))
        return outcomes

    def warm_up(self) -> None: ...

    def close(self) -> None: ...


def _requests(count: int) -> list[EngineRequest]:
    rng = np.random.default_rng(1)
    return [request(rng, 4096, state=10 + n, questions=2, options=4, width=8) for n in range(count)]


def test_an_engine_agrees_with_itself(engine: Engine) -> None:
    found = checks.against_reference(engine, engine, _requests(3))
    assert found["relative_error_max"] == 0
    assert (found["slots"], found["flips_above_margin"]) == (12, 0)


def test_wrong_logits_and_flips_are_found(engine: Engine) -> None:
    scaled = checks.against_reference(Distorted(engine, 1.1), engine, _requests(3))
    assert scaled["relative_error_max"] > 2e-2
    turned = checks.against_reference(Distorted(engine, -1.0), engine, _requests(3))
    assert turned["flips_above_margin"] == round(turned["share_above_margin"] * turned["slots"]) > 0


def test_company_that_changes_an_answer_is_found(engine: Engine) -> None:
    rng = np.random.default_rng(0)
    assert checks.packing(engine, _requests(6), rng)["probability_change_max"] < 1e-4
    assert checks.packing(Distorted(engine, 1.0, lonely=0.5), _requests(6), rng)["probability_change_max"] > 0.01


def test_drift_counts_moved_probabilities_and_other_answers(engine: Engine) -> None:
    same = checks.drift(engine, engine, _requests(3))
    assert (same["probability_change_max"], same["flip_share"], same["flip_share_above_margin"]) == (0, 0, 0)
    turned = checks.drift(Distorted(engine, -1.0), engine, _requests(3))
    assert turned["probability_change_max"] > 0
    assert (turned["flip_share"], turned["flip_share_above_margin"]) == (1, 1)


def test_a_checkpoint_that_fails_is_told_and_the_next_one_is_checked(checkpoint: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(checkpoint, broken)
    (broken / "config.json").write_text("{}")
    out = tmp_path / "check.json"
    arguments = [*SMALL, "--models", f"{broken},{checkpoint}", "--json", str(out)]
    assert gpu_check.main(arguments) == 1
    kept = json.loads(out.read_text())["models"]
    assert kept["broken"]["missed"] == ["failed"]
    assert "config.json" in kept["broken"]["failed"]
    assert kept[checkpoint.name]["soak"]["answered"] == 5


def test_the_command_checks_a_directory_and_the_same_upcycled(checkpoint: Path, tmp_path: Path) -> None:
    mixed = tmp_path / "mixed"
    upcycle(mixed, source=checkpoint)
    config = json.loads((mixed / "config.json").read_text())["text_config"]
    assert (config["num_experts"], config["top_k_experts"]) == (8, 2)
    out = tmp_path / "check.json"
    (mixed / "log.jsonl").write_text('{"event": "end", "step": 7}\n{"event": "step"}\n')
    gpu_check.main([*SMALL, "--drift", "int4", "--models", f"{checkpoint},{mixed}", "--json", str(out)])
    kept = json.loads(out.read_text())["models"]
    for directory in (checkpoint, mixed):
        found = kept[directory.name]
        assert found["reference"]["relative_error_max"] < 1e-5
        assert found["soak"] | {"answered": 5, "failures": []} == found["soak"]
        assert found["drift"]["int4"]["probability_change_max"] > 0
        # Random weights have no opinion: the one check that may be missed.
        assert set(found["missed"]) <= {"share_above_margin"}
    assert kept["mixed"]["training"] == [{"event": "end", "step": 7}]
