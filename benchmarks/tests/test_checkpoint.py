"""The random checkpoint is one that transformers opens, and loading it is measured."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from openjev_server.bundle import load_bundle
from openjev_server.canvas.compile import Layout
from openjev_server.engine.loading import load_engine
from openjev_server.engine.protocol import EngineResult
from openjev_server.questions import Noul
from transformers import DiffusionGemmaForBlockDiffusion

from benchmarks import load_checkpoint, write_checkpoint
from benchmarks.released import configuration
from benchmarks.text import Text


def write(directory: Path, *arguments: str) -> None:
    assert write_checkpoint.main([str(directory), "--like", "small", "--device", "cpu", *arguments]) == 0


@pytest.mark.parametrize(("float8", "tensors", "size"), [(False, 1047, 51_647_562_456), (True, 24_232, 27_197_665_496)])
def test_the_layout_adds_up_to_the_published_files(float8: bool, tensors: int, size: int) -> None:
    # What the headers of google/diffusiongemma-26B-A4B-it and of RedHatAI's FP8-dynamic checkpoint say; both hold the
    # same vision tower.
    listed = json.loads((Path(__file__).parents[2] / "fixtures/dgemma_tensors.json").read_text())
    vision = listed["saved_tensors"] - len(listed["text"])
    vision_bytes = listed["saved_bytes"] - sum(2 * math.prod(tensor["shape"]) for tensor in listed["text"].values())
    text = write_checkpoint.entries(configuration(), float8=float8)
    assert len(text) + vision == tensors
    assert sum(entry.nbytes for entry in text) + vision_bytes == size


def test_transformers_opens_it_and_misses_nothing(tmp_path: Path) -> None:
    write(tmp_path / "whole", "--vision", "--shard-gb", "0.0005")
    assert len(list((tmp_path / "whole").glob("model-*-of-00004.safetensors"))) == 4
    _, info = DiffusionGemmaForBlockDiffusion.from_pretrained(tmp_path / "whole", output_loading_info=True)
    assert {name: found for name, found in info.items() if found} == {}


@pytest.mark.parametrize("weights", ["bfloat16", "float8"])
def test_it_answers(tmp_path: Path, weights: str) -> None:
    write(tmp_path, "--weights", weights)
    assert load_bundle(tmp_path).template.chat
    engine = load_engine(tmp_path, device="cpu", dtype="float32")
    text = Text()
    compiled = text.compiler.compile(text.state(50), [Noul("q", "?")], layout=Layout.ISOLATED)
    assert isinstance(engine.run([compiled.request])[0], EngineResult)


def test_the_same_seed_writes_the_same_files(tmp_path: Path) -> None:
    for name, seed in (("one", "3"), ("same", "3"), ("other", "4")):
        write(tmp_path / name, "--seed", seed)
    one, same, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "same", "other"))
    assert one == same
    assert one != other


@pytest.mark.parametrize("weights", ["auto", "float8", "int4"])
def test_loading_is_measured(tmp_path: Path, weights: str) -> None:
    write(tmp_path / "model")
    arguments = [str(tmp_path / "model"), "--device", "cpu", "--weights", weights, "--json", str(tmp_path / "out.json")]
    assert load_checkpoint.main(arguments) == 0
    measured = json.loads((tmp_path / "out.json").read_text())
    assert measured["weights"] == ("plain" if weights == "auto" else weights)
    assert measured["bytes_read"] == sum(measured["stored"]["bytes_by_dtype"].values())
    assert measured["host"]["peak_rss"] >= measured["host"]["held_before"]["rss"] > 0
    assert measured["tensors"]["skipped"] == {}
