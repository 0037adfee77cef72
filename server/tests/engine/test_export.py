"""`openjev export`: transformers opens the directory without complaint and says what our engine says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from openjev_server.bundle import EMBEDDED_MODEL, load_bundle, resolve_model
from openjev_server.canvas.compile import CompiledRequest, Compiler, Layout
from openjev_server.engine.export import ExportError, export
from openjev_server.engine.loading import load_engine
from openjev_server.engine.protocol import Engine, EngineResult
from openjev_server.engine.weights import CheckpointError
from openjev_server.questions import Choice, Noul, Option, Score
from random_models import reference, save_random
from safetensors.torch import load_file, save_file
from transformers import DiffusionGemmaForBlockDiffusion

STATE = "I was charged twice for my October invoice and nobody answers. Refund me today or I will cancel."
QUESTIONS = (
    Choice("team", "Which team?", (Option("billing", "Payments"), Option("technical support"), Option("sales"))),
    Noul("urgent", "Does the customer want an answer today?"),
    Score("anger", "How angry is the customer?", ("calm", "annoyed", "furious")),
)
EMBEDDED = resolve_model(EMBEDDED_MODEL)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("export") / "plain"
    assert export(EMBEDDED, directory) == (directory / "model.safetensors").stat().st_size
    return directory


@pytest.fixture(scope="module")
def opened(exported: Path) -> tuple[Any, dict[str, Any]]:
    model, info = DiffusionGemmaForBlockDiffusion.from_pretrained(exported, output_loading_info=True)
    return model.eval(), info


@pytest.fixture(scope="module")
def engines(exported: Path) -> tuple[Engine, Engine]:
    """On the embedded checkpoint, and on its export."""
    embedded, plain = (load_engine(directory, device="cpu", dtype="float32") for directory in (EMBEDDED, exported))
    return embedded, plain


def compiled(directory: Path, steps: int) -> CompiledRequest:
    bundle = load_bundle(directory)
    compiler = Compiler(bundle.tokenizer, bundle.template)
    return compiler.compile(STATE, QUESTIONS, layout=Layout.ISOLATED, steps=steps, replicas=1)


def run(engine: Engine, request: CompiledRequest) -> EngineResult:
    (result,) = engine.run([request.request])
    assert isinstance(result, EngineResult)
    return result


def test_a_directory_has_what_transformers_needs_and_no_more(exported: Path) -> None:
    files = {path.name for path in exported.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= files
    ours = {"MODEL_CARD.md", "calibration.json", "self_check.json"}
    assert files <= {"config.json", "model.safetensors", "tokenizer.json", *ours}
    config = json.loads((exported / "config.json").read_text())
    assert config["architectures"] == ["DiffusionGemmaForBlockDiffusion"]
    assert config["dtype"] == "float32"


def test_transformers_misses_nothing(opened: tuple[Any, dict[str, Any]]) -> None:
    assert {name: found for name, found in opened[1].items() if found} == {}


def test_whoever_may_read_one_file_may_read_all(exported: Path) -> None:
    assert len({path.stat().st_mode for path in exported.iterdir()}) == 1


def test_vision_weights_are_zero(exported: Path) -> None:
    vision = {name: t for name, t in load_file(exported / "model.safetensors").items() if "vision" in name}
    assert vision
    assert not any(tensor.any() for tensor in vision.values())


@pytest.mark.parametrize("steps", [1, 2])
def test_transformers_says_what_our_engine_says(
    opened: tuple[Any, dict[str, Any]], engines: tuple[Engine, Engine], steps: int
) -> None:
    request = compiled(EMBEDDED, steps)
    result = run(engines[0], request)
    for block, ours in zip(request.request.blocks, result.blocks, strict=True):
        theirs = torch.stack(reference(opened[0], request.request, block, 0)).numpy()
        np.testing.assert_allclose(ours.log_probs[:, 0], theirs, atol=1e-4, rtol=0)


def test_our_engine_opens_it_too(exported: Path, engines: tuple[Engine, Engine]) -> None:
    before, after = (
        run(engine, compiled(directory, 2)) for engine, directory in zip(engines, (EMBEDDED, exported), strict=True)
    )
    for one, other in zip(before.blocks, after.blocks, strict=True):
        np.testing.assert_array_equal(one.log_probs, other.log_probs)


def test_the_calibration_goes_along(exported: Path, engines: tuple[Engine, Engine]) -> None:
    def read(directory: Path, engine: Engine) -> dict[tuple[str, int], str]:
        entries = load_bundle(directory).calibrations(engine.info).entries
        assert entries
        return {key: calibration.hash for key, calibration in entries.items()}

    assert read(exported, engines[1]) == read(EMBEDDED, engines[0])


def test_bfloat16_halves_the_file(exported: Path, tmp_path: Path) -> None:
    size = export(EMBEDDED, tmp_path / "half", dtype=torch.bfloat16)
    assert size < 0.52 * (exported / "model.safetensors").stat().st_size
    engine = load_engine(tmp_path / "half", device="cpu", dtype="bfloat16")
    assert all(np.isfinite(block.log_probs).all() for block in run(engine, compiled(EMBEDDED, 1)).blocks)


def test_vision_weights_of_the_source_are_kept(tmp_path: Path) -> None:
    save_random(tmp_path / "source")
    export(tmp_path / "source", tmp_path / "copy")
    source, copy = (load_file(tmp_path / name / "model.safetensors") for name in ("source", "copy"))
    assert copy.keys() == source.keys()
    assert all(torch.equal(copy[name], source[name]) for name in source)


def test_a_directory_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    with pytest.raises(ExportError, match="not an empty directory"):
        export(EMBEDDED, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes"]


@pytest.mark.parametrize("fault", ["missing", "misshapen", "extra"])
def test_a_source_that_does_not_fit_its_configuration_is_refused(tmp_path: Path, fault: str) -> None:
    save_random(tmp_path / "source")
    weights = tmp_path / "source" / "model.safetensors"
    tensors = load_file(weights)
    name = "model.decoder.norm.weight"
    if fault == "missing":
        del tensors[name]
    elif fault == "misshapen":
        tensors[name] = tensors[name][:-1].clone()
    else:
        name = "model.decoder.another.weight"
        tensors[name] = torch.zeros(1)
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        export(tmp_path / "source", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
