"""`ablate` end to end: on a small random checkpoint with the released model's turns, and on the embedded one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agreement.made import choice, fixture, noul, score
from agreement.released import save_released
from openjev_compat import local_model
from openjev_compat.ablate import compare_variant
from openjev_compat.ablate_cli import app
from openjev_compat.local_model import LocalModel, Setup
from openjev_compat.store import write_fixtures
from openjev_compat.variants import FACTORS, base_setup, variants
from openjev_server.canvas import OPENJEV_LITERAL, SEED, Compiler, Template
from openjev_server.questions import Choice, Noul, Option, Question, Score
from openjev_server.settings import Settings
from typer.testing import CliRunner, Result

FIXTURES = [
    fixture("n", noul(0.9), reference={"true": 1.0}),
    fixture("c", choice(0.2, 0.7, 0.1), reference={"b": 1.0}),
    fixture("s", score(0.1, 0.2, 0.7)),
]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_released(tmp_path_factory.mktemp("model") / "released")


def ablate(tmp_path: Path, *flags: str) -> Result:
    path = tmp_path / "fixtures.jsonl"
    write_fixtures(path, FIXTURES)
    out = ["--out", str(tmp_path / "out"), "--device", "cpu", "--dtype", "float32"]
    return CliRunner().invoke(app, ["ablate", "--fixtures", str(path), *out, *flags])


def results(tmp_path: Path) -> dict[str, Any]:
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    return {result["name"]: result for result in report["results"]}


def test_every_factor_is_varied_and_resumed(tmp_path: Path, released: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factors = ",".join(name for name in FACTORS if name != "weights")
    done = ablate(tmp_path, "--model", str(released), "--only", factors)
    assert done.exit_code == 0, done.output
    first = results(tmp_path)
    reasons = {name: result["reason"] for name, result in first.items() if result["reason"] is not None}
    assert reasons == dict.fromkeys(
        ("2 steps", "conditioned on full tokens", "empty thought block", "filled with <eos>"),
        "it is how the base asks",
    )
    for name, reason in reasons.items():
        assert f"not run: {name}: {reason}" in done.output
    ran = {name: result for name, result in first.items() if name not in reasons}
    assert {result["factor"] for result in ran.values()} == {"base", *FACTORS} - {"weights"}
    assert {(result["answered"], result["questions"]) for result in ran.values()} == {(3, 3)}
    assert all(result["estimates"]["accuracy_left"]["n"] == 2 for result in ran.values())
    assert {"no thought block", "instructions first", "canvas of 256 tokens", "the seed, grouped, 2 steps"} < set(ran)
    assert first["base"]["changed"] is None
    assert "| instructions first | " in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    monkeypatch.setattr(local_model.LocalModel, "engine", property(lambda self: pytest.fail("asked again")))
    assert ablate(tmp_path, "--model", str(released), "--only", factors).exit_code == 0
    assert results(tmp_path) == first


def test_dry_run_on_the_embedded_checkpoint(tmp_path: Path) -> None:
    done = ablate(tmp_path, "--model", "nano", "--only", "steps,thought", "--nodes", "2")
    assert done.exit_code == 0, done.output
    found = {name: (result["answered"], result["reason"]) for name, result in results(tmp_path).items()}
    assert found == {
        "base": (2, None),
        "1 step": (2, None),
        "4 steps": (2, None),
        "2 steps": (0, "it is how the base asks"),
        "no thought block": (0, "it is how the base asks"),
        "empty thought block": (0, "the tokenizer lacks its control tokens"),
    }


def test_a_factor_that_cannot_be_varied_at_all_is_refused(tmp_path: Path) -> None:
    done = ablate(tmp_path, "--model", "nano", "--only", "order")
    assert done.exit_code == 2
    assert "nothing to vary: instructions first: the base's template" in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_a_thought_block_of_the_chat_template_can_be_left_out(released: Path) -> None:
    turn = (*OPENJEV_LITERAL.turn_close, *OPENJEV_LITERAL.canvas_head)
    base = base_setup(replace(OPENJEV_LITERAL, turn_close=turn, canvas_head=()))
    block = {v.setup.name: v for v in variants(base, None) if v.factor == "thought"}
    assert block["no thought block"].setup.template == replace(OPENJEV_LITERAL, canvas_head=())
    assert block["empty thought block"].reason is not None


def test_weights_that_the_base_has_are_not_loaded_again() -> None:
    found = {v.weights: v.reason for v in variants(base_setup(OPENJEV_LITERAL), None, weights="int4") if v.weights}
    assert found == {"bfloat16": None, "float8": None, "int4": "the base has them"}


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--model", "nano", "--only", "steps,colour"), "--only colour: choose among thought, tail"),
        (("--model", "nano", "--only", ""), "choose among"),
        (("--model", "nano", "--device", "tpu"), "unknown device"),
        (("--model", "no-such-model"), "no-such-model"),
        (("--model", "nano", "--cases", "."), "cases.js"),
        (("--model", "nano", "--template", "seed-1"), "seed-1"),
    ],
)
def test_what_cannot_be_used_is_one_line(tmp_path: Path, flags: tuple[str, ...], reason: str) -> None:
    done = ablate(tmp_path, *flags)
    assert done.exit_code == 2
    assert reason in done.output


def test_answers_of_another_template_are_not_resumed(tmp_path: Path, released: Path) -> None:
    flags = ("--model", str(released), "--only", "steps", "--nodes", "1")
    assert ablate(tmp_path, *flags).exit_code == 0
    (tmp_path / "own.toml").write_text('name = "own"\ncanvas_head = []\n')
    done = ablate(tmp_path, *flags, "--template", str(tmp_path / "own.toml"))
    assert done.exit_code == 2
    assert "holds answers of" in done.output
    assert ablate(tmp_path, *flags, "--template", str(tmp_path / "own.toml"), "--no-resume").exit_code == 0


def test_each_variant_changes_one_thing(released: Path) -> None:
    model = LocalModel(Settings(model=str(released)))
    base = base_setup(model.template(OPENJEV_LITERAL.id))
    found = variants(base, model.template(SEED.id))
    assert len({variant.setup.name for variant in found}) == len(found)
    for variant in [variant for variant in found if variant.reason is None]:
        setup = variant.setup
        differing = {
            name for name in ("layout", "steps", "replicas", "noise") if getattr(setup, name) != getattr(base, name)
        }
        if setup.template != base.template:
            differing.add("template")
        allowed = {"base": 0, "weights": 0, "seed": 4}.get(variant.factor, 2 if "grouped, 1" in setup.name else 1)
        assert len(differing) <= allowed, setup.name


def test_what_follows_the_first_step_is_compared_under_equal_noise(released: Path) -> None:
    model = LocalModel(Settings(model=str(released)))
    base = base_setup(model.template(OPENJEV_LITERAL.id))
    question = Choice("c", "Who?", (Option("buyer"), Option("seller")))

    def canvas(setup: Setup) -> list[int]:
        compiler = Compiler(model.tokenizer, setup.template, noise=setup.noise)
        return compiler.compile("The state.", [question], steps=2).request.blocks[0].canvases[0].tolist()

    found = variants(base, None)
    assert all(canvas(v.setup) == canvas(base) for v in found if v.factor in ("conditioning", "steps", "weights"))
    assert all(canvas(v.setup) != canvas(base) for v in found if v.setup.name == "other noise")


def test_the_instructions_come_first_in_the_words_of_the_default(released: Path) -> None:
    model = LocalModel(Settings(model=str(released)))
    base = base_setup(model.template(OPENJEV_LITERAL.id))
    (first,) = [v.setup.template for v in variants(base, None) if v.setup.name == "instructions first"]
    questions = [
        Noul("n", "Is it late?", None, "in time"),
        Choice("c", {"ask": ["who"]}, (Option("buyer", "who bought"), Option("seller"))),
        Score("s", "How angry?", ("calm", {"very": "cross"})),
    ]
    for question in questions:
        after, before = (_user_turn(model, template, question) for template in (base.template, first))
        assert after.startswith("The state.")
        assert before.endswith("The state.")
        asked = [text.replace("The state.", "").replace("above", "below").split() for text in (after, before)]
        assert asked[0] == asked[1]


def _user_turn(model: LocalModel, template: Template, question: Question) -> str:
    request = Compiler(model.tokenizer, template).compile("The state.", [question]).request
    text = model.tokenizer.decode([*request.state.tolist(), *request.blocks[0].suffix.tolist()])
    return text.removeprefix("<bos><|turn>user\n").removesuffix("<turn|>\n<|turn>model\n")


def test_a_variant_is_compared_with_jev_and_the_base() -> None:
    jev = {f.id: f for f in FIXTURES}
    base = [fixture("n", noul(0.2)), fixture("c", choice(0.1, 0.8, 0.1)), fixture("s", score(1.0, 0.0, 0.0))]
    ours = [fixture("n", noul(0.8)), fixture("c", choice(0.8, 0.1, 0.1)), fixture("s", score(1.0, 0.0, 0.0))]
    result = compare_variant("v", "steps", "how", ours, base, jev, seconds=1.0)
    assert (result.estimates["agreement"].hits, result.estimates["agreement"].n) == (1, 3)
    assert result.changed is not None
    assert (result.changed.hits, result.changed.n) == (2, 3)
    assert result.against_base is not None
    assert (result.against_base.left_only, result.against_base.right_only, result.against_base.neither) == (1, 1, 1)
