from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from canvas_tokenizers import GEMMA_CHAT, gemma_named
from openjev_server.bundle import EMBEDDED_MODEL, load_bundle, resolve_model
from openjev_server.canvas import OPENJEV_LITERAL

from .conftest import Run

QUESTIONS = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "who": {"type": "choice", "instructions": "Who pays?", "criteria": {"buyer": "buys", "seller": None}},
}


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"state": {"note": "here"}, "questions": QUESTIONS}))
    return str(path)


@pytest.fixture
def released(tmp_path: Path) -> Path:
    """What the front reads of a checkpoint with Gemma's token names."""
    directory = tmp_path / "released"
    directory.mkdir()
    gemma_named().save(str(directory / "tokenizer.json"))
    shutil.copy(resolve_model(EMBEDDED_MODEL) / "config.json", directory)
    (directory / "chat_template.jinja").write_text(GEMMA_CHAT)
    return directory


def test_show_marks_the_slots_of_every_canvas(run: Run, questions: str, released: Path) -> None:
    done = run("template", "show", "seed", "--questions", questions, "--model", str(released), "--layout", "grouped")
    assert done.returncode == 0, done.stderr
    assert '<document>\n{"note": "here"}\n</document>' in done.stdout
    assert '"late":[[ true| false]],\n"who": "[[' in done.stdout
    assert "256 tokens" in done.stdout
    assert done.stdout.startswith("seed-1 (")
    assert "</fields>«<turn|>»\n«<|turn>»model" in done.stdout


def test_show_takes_the_template_that_fits(run: Run, questions: str) -> None:
    done = run("template", "show", "auto", "--questions", questions, "--steps", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nano-label-v1 (")
    assert '{"answer": [[«<o0>»|«<o1>»]]}' in done.stdout


def test_list_says_what_fits(run: Run, released: Path) -> None:
    done = run("template", "list", "--model", str(released))
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith(("nano", "openjev", "seed"))}
    assert lines["openjev-literal-1"].split()[-1] == "default"
    assert lines["seed-1"].split()[-1] == "fits"
    assert "lacks" in lines["nano-label-v1"]


@pytest.mark.parametrize("name", ["seed-1", "nix", "nix.toml"])
def test_a_template_that_does_not_fit_is_one_line(run: Run, questions: str, name: str) -> None:
    done = run("template", "show", name, "--questions", questions)
    assert done.returncode == 1
    assert done.stderr.startswith("openjev: nano: ")
    assert done.stderr.count("\n") == 1


def test_a_bundle_is_bound_to_its_chat_template(released: Path) -> None:
    bundle = load_bundle(released)
    assert bundle.template.id == OPENJEV_LITERAL.id
    assert bundle.template.chat
    before = bundle.template.hash
    (released / "chat_template.jinja").write_text(GEMMA_CHAT + "{# edited #}")
    assert load_bundle(released).template.hash != before
