"""The command line as a user runs it, in processes of its own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from openjev_server.bundle import ModelNotFound, resolve_model
from openjev_server.cli.absent import absent_package
from openjev_server.cli.ask import app as ask_app
from openjev_server.cli.serve import app as serve_app
from openjev_server.settings import Settings
from typer.testing import CliRunner

from .conftest import BODY, FakeServer, Run, environment, start

ASK = ("--state", "Help!", "--noul", "@urgent Is it urgent?")
HEAVY = ("torch", "starlette", "transformers", "numpy", "pydantic_settings", "openjev_server.settings")


def modules_after(*arguments: str) -> set[str]:
    """The modules that `openjev ARGUMENTS` has imported when it ends."""
    code = (
        "import sys\nfrom openjev_server.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('MODULES', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("MODULES ")[2].split())


def test_ask_with_a_url_needs_the_sdk_only(fake_server: FakeServer) -> None:
    modules = modules_after("ask", "--url", fake_server.url, *ASK)
    assert "openjev_sdk" in modules
    assert modules.isdisjoint(HEAVY)


def test_help_imports_nothing_heavy_and_lists_every_command() -> None:
    assert modules_after("--help").isdisjoint({*HEAVY, "httpx", "openjev_sdk", "matplotlib"})


def test_commands_of_the_comparison_are_there_when_their_package_is(run: Run) -> None:
    shown = run("--help").stdout
    assert all(name in shown for name in ("serve", "ask", "doctor", "export"))
    there = find_spec("openjev_compat.cli") is not None
    assert all((name in shown) is there for name in ("agree", "record", "shadow", "import-cases"))


def test_ask_sends_what_was_typed(run: Run, fake_server: FakeServer) -> None:
    done = run(
        "ask", "-", "--url", fake_server.url, "--api-key", "secret", "--model", "jev-1.14.0",
        "--layout", "grouped", "--steps", "3", "--decimals", "4",
        "--noul", "@urgent Is it urgent?", "--choice", "@team Who?=billing:payments,sales",
        "--score", "@anger How angry?=calm|furious",
        stdin="Help ☂\n",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ((headers, body),) = fake_server.received
    assert headers["authorization"] == "Bearer secret"
    assert (headers["openjev-layout"], headers["openjev-steps"], headers["openjev-decimals"]) == ("grouped", "3", "4")
    assert body == {
        "state": "Help ☂",
        "model": "jev-1.14.0",
        "questions": {
            "urgent": {"type": "noul", "instructions": "Is it urgent?"},
            "team": {
                "type": "choice",
                "instructions": "Who?",
                "criteria": {"billing": "payments", "sales": None},
            },
            "anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", "furious"]},
        },
    }
    assert "urgent Is it urgent? → yes" in done.stdout
    assert "fake@0/none" in done.stdout


def test_serve_hands_every_flag_to_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    flags: dict[str, object] = {
        "model": "nano", "host": "127.0.0.2", "port": 1, "allow_unauthenticated": True, "layout": "grouped", "steps": 3,
        "replicas": 2, "decimals": 4, "template": "t", "device": "cpu", "dtype": "float32", "threads": 1,
        "weights": "int4", "adapter": "a", "revision": "r", "engines": 2,
    }  # fmt: skip
    arguments = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    arguments.remove("True")
    given: list[Settings] = []
    monkeypatch.setattr("openjev_server.serving.serve", lambda settings, _: given.append(settings) or 0)
    assert CliRunner().invoke(serve_app, ["serve", *arguments], catch_exceptions=False).exit_code == 0
    settings = given[0].model_dump()
    flags["model_revision"] = flags.pop("revision")
    assert {name: settings[name] for name in flags} == flags
    assert given[0].model_fields_set == set(flags)


def test_ask_reads_a_whole_request_and_prints_json(run: Run, fake_server: FakeServer, tmp_path: Path) -> None:
    questions = {"urgent": {"type": "noul", "criteria": {"true": "now", "false": None}}}
    (tmp_path / "request.json").write_text(json.dumps({"state": {"text": "Help!"}, "questions": questions}))
    done = run("ask", "--url", fake_server.url, "--questions", str(tmp_path / "request.json"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == BODY
    assert fake_server.received[0][1]["questions"] == questions
    assert fake_server.received[0][1]["state"] == {"text": "Help!"}


def test_a_json_file_is_a_structured_state(run: Run, fake_server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('\ufeff[{"role": "user", "text": "Help!"}]', encoding="utf-8")
    assert run("ask", str(tmp_path / "state.json"), "--url", fake_server.url, "--noul", "Late?").returncode == 0
    assert fake_server.received[0][1]["state"] == [{"role": "user", "text": "Help!"}]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--noul", "Late?"), "nothing to ask about"),
        (("--state", "x"), "no question"),
        (("file", "--state", "x", "--noul", "Late?"), "not both"),
        (("missing.txt", "--noul", "Late?"), "missing.txt: No such file"),
        (("--state", "x", "--choice", "Which?"), "needs its answers"),
        (("--state", "x", "--questions", "missing.json"), "missing.json"),
        (("--state", "x", "--noul", "Late?", "--url", "http://127.0.0.1:9", "--device", "cpu"), "--device cannot"),
        (("--state", "x", "--noul", "Late?", "--url", "http://127.0.0.1:9", "--revision", "a"), "--revision cannot"),
        (("--state", "x", "--noul", "Late?", "--device", "cuda:99"), "no device 'cuda:99'"),
        (("--state", "x", "--noul", "Late?", "--device", "tpu"), "unknown device 'tpu'"),
    ],
)
def test_wrong_usage_is_said_in_one_line(run: Run, arguments: tuple[str, ...], complaint: str) -> None:
    done = run("ask", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("openjev: ")
    assert done.stderr.count("\n") == 1
    assert complaint in done.stderr


def test_a_bad_environment_variable_is_named(run: Run) -> None:
    done = run("ask", *ASK, OPENJEV_STEPS="99", OPENJEV_PORT="x")
    assert done.returncode == 2
    assert "OPENJEV_STEPS" in done.stderr
    assert "OPENJEV_PORT" in done.stderr


@pytest.mark.parametrize("command", ["ask", "serve", "export"])
def test_an_unknown_model_is_said_in_one_line(run: Run, command: str, tmp_path: Path) -> None:
    rest = {"ask": ASK, "serve": ("--port", "0"), "export": (str(tmp_path / "out"),)}[command]
    done = run(command, "--model", str(tmp_path / "nothing"), *rest)
    assert done.returncode == 1
    assert "No model" in done.stderr
    assert "Traceback" not in done.stderr


def damaged(directory: Path, file: str, content: str) -> Path:
    """A directory that would be a checkpoint without weights, were it not for this file."""
    nano = resolve_model("nano")
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(nano / name, directory)
    (directory / file).write_text(content)
    return directory


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("config.json", "[1]", "config.json is [1], not an object"),
        ("config.json", "{", "config.json cannot be read"),
        ("config.json", '{"text_config": []}', "text_config is [], not an object"),
        ("model.safetensors", "", "is no safetensors file, or is truncated"),
        ("unrelated", "", "no safetensors weights"),
    ],
)
@pytest.mark.parametrize("command", ["ask", "serve", "export"])
def test_a_faulty_checkpoint_is_said_in_one_line(
    run: Run, tmp_path: Path, command: str, file: str, content: str, says: str
) -> None:
    (tmp_path / "model").mkdir()
    rest = {"ask": ASK, "serve": ("--port", "0", "--engines", "0"), "export": (str(tmp_path / "out"),)}[command]
    done = run(command, "--model", str(damaged(tmp_path / "model", file, content)), *rest)
    assert done.returncode == 1
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len([line for line in done.stderr.splitlines() if line.startswith("openjev: ")]) == 1


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("tokenizer.json", "[1]", "tokenizer.json in"),
        ("tokenizer_config.json", "[1]", "tokenizer_config.json is not a JSON object"),
    ],
)
@pytest.mark.parametrize("command", ["ask", "doctor"])
def test_a_faulty_tokenizer_is_said(run: Run, tmp_path: Path, command: str, file: str, content: str, says: str) -> None:
    done = run(command, "--model", str(damaged(tmp_path, file, content)), *(ASK if command == "ask" else ()))
    assert done.returncode == 1
    assert says in " ".join((done.stdout + done.stderr).split())
    assert "Traceback" not in done.stderr


def test_ask_hands_its_engine_flags_to_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = {
        "model": "nano", "template": "t", "device": "cpu", "dtype": "float32", "threads": "1", "weights": "int4",
        "adapter": "a", "revision": "r",
    }  # fmt: skip
    given: list[Settings] = []

    def here(settings: Settings, *_: object) -> None:
        given.append(settings)
        raise ModelNotFound("enough")

    monkeypatch.setattr("openjev_server.cli.local.ask_here", here)
    arguments = [part for name, value in flags.items() for part in (f"--{name}", value)]
    assert CliRunner().invoke(ask_app, ["ask", *ASK, *arguments], catch_exceptions=False).exit_code == 1
    flags["model_revision"] = flags.pop("revision")
    settings = given[0].model_dump()
    assert {name: str(settings[name]) for name in flags} == flags


def test_a_refusal_of_the_server_is_said_in_one_line(run: Run, fake_server: FakeServer) -> None:
    fake_server.status = 400
    done = run("ask", "--url", fake_server.url, *ASK)
    assert done.returncode == 1
    assert "400 Unknown model: nix" in done.stderr
    assert done.stderr.count("\n") == 1


def test_serve_refuses_a_public_address_without_keys(run: Run) -> None:
    done = run("serve", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 1
    assert "OPENJEV_API_KEYS" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_ends_ask_quietly(fake_server: FakeServer) -> None:
    fake_server.hold = threading.Event()
    process = start("ask", "--url", fake_server.url, *ASK)
    assert fake_server.arrived.wait(60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


def test_an_absent_package_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')")
    settings = environment()
    settings["PYTHONPATH"] = f"{tmp_path}:{settings['PYTHONPATH']}"
    code = "import sys; from openjev_server.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "ask", *ASK]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, check=False)
    assert done.returncode == 1
    assert done.stderr == "openjev: this command needs rich, which is not installed: pip install rich\n"


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("matplotlib.pyplot", "pip install 'openjev-canvas[agree]'"),
        ("torch", "pip install torch"),
        ("openjev_server.nothing", None),
        (None, None),
    ],
)
def test_absent_packages_and_the_extras_that_bring_them(missing: str | None, said: str | None) -> None:
    line = absent_package(ModuleNotFoundError("No module", name=missing))
    assert line is None if said is None else line is not None and line.endswith(said)
