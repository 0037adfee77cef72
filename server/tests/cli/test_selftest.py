"""The recorded self-test: it passes where it was recorded, and notices what changes answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from canvas_tokenizers import GEMMA_CHAT, gemma_named
from openjev_server.bundle import load_bundle
from openjev_server.canvas import Compiler
from openjev_server.engine.loading import load_engine, weights_hash
from openjev_server.self_test import FILE_NAME, PROMPTS, SelfTestError, SelfTestResult, check, record
from random_models import WINDOW, save_random
from safetensors.torch import load_file, save_file

from .conftest import Run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    tokenizer = gemma_named()
    save_random(directory, vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=8192)
    tokenizer.save(str(directory / "tokenizer.json"))
    engine = load_engine(directory, device="cpu", dtype="float32")
    bundle = load_bundle(directory)
    compiler = Compiler(bundle.tokenizer, bundle.template)
    record(engine, compiler, directory / FILE_NAME, model=bundle.id, weights_hash=weights_hash(directory))
    return directory


def checked(directory: Path, file: Path | None = None, *, template: str = "auto", **options: Any) -> SelfTestResult:
    bundle = load_bundle(directory, template=template)
    engine = load_engine(directory, device="cpu", dtype=options.pop("dtype", "float32"))
    compiler = Compiler(bundle.tokenizer, bundle.template)
    return check(engine, compiler, file or directory / FILE_NAME, weights_hash=weights_hash(directory), **options)


def test_it_passes_where_it_was_recorded(recorded: Path) -> None:
    result = checked(recorded)
    assert not result.problems
    assert result.difference < 1e-5
    assert result.questions == sum(len(prompt.questions) for prompt in PROMPTS)
    assert result.tolerance == 0.01
    assert checked(recorded, dtype="bfloat16").tolerance == 0.08


def test_one_prompt_is_longer_than_the_window(recorded: Path) -> None:
    bundle = load_bundle(recorded)
    lengths = [
        len(Compiler(bundle.tokenizer, bundle.template).compile(p.state, p.questions).request.state) for p in PROMPTS
    ]
    assert max(lengths) > 1100 > WINDOW


def test_answers_that_moved_are_named(recorded: Path, tmp_path: Path) -> None:
    lines = json.loads((recorded / FILE_NAME).read_text())
    expected = lines["prompts"]["options"]["city"]
    expected["probabilities"] = expected["probabilities"][::-1]
    expected["top"] = len(expected["probabilities"]) - 1 - expected["top"]
    expected["margin"] = 0.5
    file = tmp_path / "moved.json"
    file.write_text(json.dumps(lines))
    result = checked(recorded, file)
    assert len(result.problems) == 2
    assert all(problem.startswith("options, city: ") for problem in result.problems)
    assert result.where == "options, city"
    assert not checked(recorded, file, tolerance=1.0).problems


def test_a_scaled_layer_is_noticed(recorded: Path, tmp_path: Path) -> None:
    """A fault in computing, not in the file: the recording is made to belong to the changed weights."""
    broken = tmp_path / "broken"
    shutil.copytree(recorded, broken)
    tensors = load_file(broken / "model.safetensors")
    name = next(name for name in tensors if name.endswith("layers.1.self_attn.o_proj.weight"))
    tensors[name] = torch.zeros_like(tensors[name]) + tensors[name].mean()
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    lines = json.loads((broken / FILE_NAME).read_text())
    with pytest.raises(SelfTestError, match="recorded for weights"):
        checked(broken)
    lines["weights_hash"] = weights_hash(broken)
    (broken / FILE_NAME).write_text(json.dumps(lines))
    assert checked(broken).problems


def test_a_recording_is_bound_to_its_template_and_prompts(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(SelfTestError, match="recorded under template"):
        checked(recorded, template="seed-1")
    with pytest.raises(SelfTestError, match=r"no absent\.json"):
        checked(recorded, tmp_path / "absent.json")
    lines = json.loads((recorded / FILE_NAME).read_text())
    del lines["prompts"]["long"]
    file = tmp_path / "fewer.json"
    file.write_text(json.dumps(lines))
    with pytest.raises(SelfTestError, match="other prompts"):
        checked(recorded, file)
    file.write_text("{}")
    with pytest.raises(SelfTestError, match="is no recording"):
        checked(recorded, file)
    chat = tmp_path / "chat"
    shutil.copytree(recorded, chat)
    (chat / "chat_template.jinja").write_text(GEMMA_CHAT)
    with pytest.raises(SelfTestError, match="recorded under template"):
        checked(chat)


def test_the_embedded_checkpoint_ships_its_own(run: Run, tmp_path: Path) -> None:
    done = run("selftest", "check")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("ok: 13 answers")
    file = tmp_path / "mine.json"
    assert run("selftest", "record", "--file", str(file), "--threads", "1").returncode == 0
    assert json.loads(file.read_text())["template"] == "nano-label-v1"
    absent = run("selftest", "check", "--file", str(tmp_path / "absent.json"))
    assert absent.returncode == 1
    assert absent.stderr.count("\n") == 1


@pytest.mark.parametrize("text", ["{", '{"model": 1}', "[]"])
def test_another_file_is_one_line(recorded: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "other.json"
    file.write_text(text)
    with pytest.raises(SelfTestError, match="is no recording of") as caught:
        checked(recorded, file)
    assert "\n" not in str(caught.value)
