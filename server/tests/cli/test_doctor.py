"""`openjev doctor`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from canvas_tokenizers import GEMMA_CHAT, gemma_named
from openjev_server.bundle import EMBEDDED_MODEL, load_bundle, resolve_model
from openjev_server.canvas.compile import Compiler
from openjev_server.doctor import Status, effective_settings, unsafe_settings
from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.loading import load_engine
from openjev_server.engine.tensors import SKIPPED_PREFIXES, tensor_shapes
from openjev_server.self_check import FILE_NAME, QUESTIONS, record, run_self_check
from openjev_server.settings import Settings
from random_models import save_random
from safetensors.torch import load_file, save_file

from .conftest import Run

EMBEDDED = resolve_model(EMBEDDED_MODEL)


@pytest.fixture(scope="module")
def embedded() -> tuple[Any, Compiler]:
    bundle = load_bundle(EMBEDDED)
    return load_engine(EMBEDDED, device="cpu", dtype="float32"), Compiler(bundle.tokenizer, bundle.template)


def settings(**values: Any) -> Settings:
    return Settings(**values)


def found(**values: Any) -> set[tuple[str, Status]]:
    return {(finding.text.split(":")[0], finding.status) for finding in unsafe_settings(settings(**values))}


def statuses(**values: Any) -> set[Status]:
    return {status for _, status in found(**values)}


def test_the_embedded_checkpoint_gives_its_recorded_answers(embedded: tuple[Any, Compiler]) -> None:
    check = run_self_check(*embedded, EMBEDDED)
    assert check.problems == ()
    assert check.compared, f"{FILE_NAME} is missing: openjev doctor --record"


def test_another_answer_than_the_recorded_one_is_a_problem(embedded: tuple[Any, Compiler], tmp_path: Path) -> None:
    assert not run_self_check(*embedded, tmp_path).compared
    path = record(*embedded, tmp_path)
    assert run_self_check(*embedded, tmp_path).difference < 1e-3
    recorded = json.loads(path.read_text())
    recorded["probabilities"]["invoice"] = [0.2, 0.8]
    path.write_text(json.dumps(recorded))
    (problem,) = run_self_check(*embedded, tmp_path).problems
    assert problem.startswith("invoice: probabilities differ by 0.")


def test_a_reference_of_another_template_is_not_compared(embedded: tuple[Any, Compiler], tmp_path: Path) -> None:
    answers = {question.id: [1.0] for question in QUESTIONS}
    (tmp_path / FILE_NAME).write_text(json.dumps({"template": "another-1", "probabilities": answers}))
    assert not run_self_check(*embedded, tmp_path).compared


def test_a_spoilt_reference_is_an_error(embedded: tuple[Any, Compiler], tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{}")
    with pytest.raises(ValueError, match=FILE_NAME):
        run_self_check(*embedded, tmp_path)


def test_loopback_is_safe() -> None:
    assert statuses() == {Status.ok}


def test_a_public_address_needs_keys() -> None:
    assert Status.broken in statuses(host="0.0.0.0")
    assert Status.unsafe in statuses(host="0.0.0.0", allow_unauthenticated=True)
    keyed = statuses(host="0.0.0.0", api_keys="a=secret-key")
    assert not keyed & {Status.broken, Status.unsafe}
    assert Status.note in keyed


def test_any_origin_without_keys_is_unsafe_even_on_loopback() -> None:
    assert Status.unsafe in statuses(cors_origins="*")
    assert Status.unsafe not in statuses(cors_origins="https://example.org")


def test_every_setting_is_listed_with_its_source_and_no_secret() -> None:
    chosen = settings(steps=3, api_keys="alice=secret-key-1,secret-key-2")
    listed = effective_settings(
        chosen, {"OPENJEV_API_KEYS": "x", "openjev_port": "8000", "OPENJEV_HOST": " "}, frozenset({"steps"})
    )
    assert [s.name for s in listed] == list(Settings.model_fields)
    source = {s.name: s.source for s in listed}
    assert (source["steps"], source["port"], source["host"]) == ("flag", "OPENJEV_PORT", "default")
    value = {s.name: s.value for s in listed}
    assert value["api_keys"] == ["alice", "key-2"]
    assert "secret" not in json.dumps([s.value for s in listed])


def test_a_healthy_machine(run: Run) -> None:
    done = run("doctor", "--json", OPENJEV_STEP="3")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["broken"] is False
    assert report["hardware"]["cores"] >= 1
    findings = {finding["topic"]: finding for finding in report["findings"]}
    assert findings["dtype"]["data"]["why"]
    assert findings["checkpoint"]["data"]["id"] == "openjev-nano-1"
    assert findings["self-check"]["data"]["compared_with_reference"] is True
    assert "OPENJEV_STEP in the environment is no setting" in findings["settings"]["text"]


def test_a_damaged_checkpoint_is_broken(run: Run, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(EMBEDDED / name, tmp_path / name)
    (tmp_path / "model.safetensors").write_bytes(b"\x00" * 100)
    done = run("doctor", "--model", str(tmp_path))
    assert done.returncode == 1
    assert "does not load" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint of the released kind."""
    directory = tmp_path_factory.mktemp("released")
    save_random(directory, vocab_size=512)
    gemma_named().save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text(GEMMA_CHAT)
    return directory


def findings_of(done: Any) -> dict[str, Any]:
    return {finding["topic"]: finding for finding in json.loads(done.stdout)["findings"]}


def test_the_tensors_are_reported(run: Run, released: Path) -> None:
    done = run("doctor", "--json", "--model", str(released), "--weights", "float8")
    assert done.returncode == 0, done.stdout + done.stderr
    findings = findings_of(done)
    tensors = findings["tensors"]["data"]
    assert tensors["faults"] == []
    assert tensors["consumed"] == len(tensor_shapes(BackboneConfig.from_directory(released)))
    assert set(tensors["skipped"]) == set(SKIPPED_PREFIXES)
    assert tensors["bytes_by_dtype"].keys() == {"F32"}
    assert findings["chat template"]["data"] == {"present": True}


def test_a_configuration_of_another_model_is_said(run: Run, released: Path, tmp_path: Path) -> None:
    shutil.copy(released / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 512}))
    done = run("doctor", "--model", str(tmp_path))
    assert done.returncode == 1
    assert "model_type 'llama'" in " ".join(done.stdout.split())


def test_every_fault_is_named(run: Run, released: Path, tmp_path: Path) -> None:
    for path in released.iterdir():
        shutil.copy(path, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    gone = [name for name in tensors if name.startswith("model.decoder.layers.1.mlp.")]
    save_file({name: t for name, t in tensors.items() if name not in gone}, tmp_path / "model.safetensors")
    done = run("doctor", "--json", "--model", str(tmp_path))
    assert done.returncode == 1
    findings = findings_of(done)
    assert findings["tensors"]["data"]["faults"] == [f"{name} is missing" for name in sorted(gone, key=place_of)]
    assert findings["checkpoint"]["data"]["faults"] == findings["tensors"]["data"]["faults"]


def sharded(released: Path, directory: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """One indexed file."""
    for path in released.iterdir():
        if path.suffix != ".safetensors":
            shutil.copy(path, directory)
    save_file(tensors, directory / "model-00001-of-00001.safetensors")
    index = {"weight_map": dict.fromkeys(tensors, "model-00001-of-00001.safetensors")}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def test_a_fault_of_values_is_no_tensor_that_is_ok(run: Run, released: Path, tmp_path: Path) -> None:
    name = "model.decoder.layers.1.mlp.down_proj.weight"
    tensors = load_file(released / "model.safetensors")
    tensors[name][0, 0] = torch.nan
    done = run("doctor", "--json", "--model", str(sharded(released, tmp_path, tensors)))
    assert done.returncode == 1
    findings = findings_of(done)
    assert findings["tensors"]["status"] == "broken"
    assert findings["tensors"]["data"]["faults"] == [f"{name} has values that are not finite"]
    assert done.stdout.count(f"{name} has") == 3  # once in a text, and in the lists of the two findings
    assert findings["checkpoint"]["text"].endswith("its tensors are at fault")


def test_a_truncated_file_names_each_tensor_once(run: Run, released: Path, tmp_path: Path) -> None:
    directory = sharded(released, tmp_path, load_file(released / "model.safetensors"))
    path = directory / "model-00001-of-00001.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    done = run("doctor", "--model", str(directory))
    assert done.returncode == 1
    assert " ".join(done.stdout.split()).count("is cut off") == 1


def test_a_shard_that_the_index_does_not_name_is_reported(run: Run, released: Path, tmp_path: Path) -> None:
    directory = sharded(released, tmp_path, load_file(released / "model.safetensors"))
    save_file({"x": torch.ones(1)}, directory / "model-00002-of-00001.safetensors")
    done = run("doctor", "--json", "--model", str(directory))
    assert done.returncode == 0, done.stdout
    finding = next(f for f in json.loads(done.stdout)["findings"] if "strays" in f["data"])
    assert (finding["status"], finding["data"]["strays"]) == ("note", ["model-00002-of-00001.safetensors"])


@pytest.mark.parametrize(
    ("config", "says"), [("[1]", "config.json is [1]"), ('{"text_config": []}', "text_config is [], not an object")]
)
def test_a_malformed_configuration_is_said(run: Run, released: Path, tmp_path: Path, config: str, says: str) -> None:
    shutil.copy(released / "tokenizer.json", tmp_path)
    (tmp_path / "config.json").write_text(config)
    done = run("doctor", "--model", str(tmp_path))
    assert done.returncode == 1
    assert says in " ".join(done.stdout.split())
    assert "Traceback" not in done.stderr


def place_of(name: str) -> int:
    return ["gate", "up", "down"].index(name.split(".")[-2].removesuffix("_proj"))


def test_an_adapter_is_merged_by_export(run: Run, released: Path, tmp_path: Path) -> None:
    name = "model.decoder.layers.1.self_attn.q_proj"
    weight = load_file(released / "model.safetensors")[f"{name}.weight"]
    low = {"A": torch.ones(1, weight.shape[1]), "B": torch.ones(weight.shape[0], 1)}
    (tmp_path / "adapter").mkdir()
    config = {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "base_model_name_or_path": "someone/else"}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    made = {f"base_model.model.{name}.lora_{part}.weight": tensor for part, tensor in low.items()}
    untrained = name.replace("q_proj", "o_proj")
    shape = load_file(released / "model.safetensors")[f"{untrained}.weight"].shape
    made[f"base_model.model.{untrained}.lora_A.weight"] = torch.ones(1, shape[1])
    made[f"base_model.model.{untrained}.lora_B.weight"] = torch.zeros(shape[0], 1)
    save_file(made, tmp_path / "adapter" / "adapter_model.safetensors")
    flags = ("--model", str(released), "--adapter", str(tmp_path / "adapter"))
    done = run("export", str(tmp_path / "merged"), *flags)
    assert done.returncode == 0, done.stderr
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    torch.testing.assert_close(merged[f"{name}.weight"], weight + 2)
    done = run("doctor", "--json", *flags)
    assert findings_of(done)["tensors"]["text"].endswith("2 changed by the adapter")
    notes = [finding["text"] for finding in json.loads(done.stdout)["findings"] if finding["topic"] == "adapter"]
    assert notes[0] == f"changes nothing in {untrained}.weight: it adds zero"
    assert notes[1].startswith("was trained on someone/else, and is merged into")


def test_a_tokenizer_of_another_model_is_refused(run: Run, tmp_path: Path) -> None:
    save_random(tmp_path, vocab_size=96)
    gemma_named().save(str(tmp_path / "tokenizer.json"))
    done = run("doctor", "--model", str(tmp_path))
    assert done.returncode == 1
    assert "another model's tokenizer" in " ".join(done.stdout.split())
