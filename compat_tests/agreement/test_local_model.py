"""`reproduce-seed` and `ablate` load what `serve` would, by the same flags and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from agreement.made import fixture, noul
from agreement.test_reproduce import make_cases, make_recorded
from openjev_compat import ablate_cli, local_model, reproduce_cli
from openjev_compat.store import write_fixtures
from openjev_server import bundle, checkpoint
from openjev_server.cli import app
from openjev_server.cli.flags import released_settings
from openjev_server.cli.lazy import COMMANDS, LazyGroup
from openjev_server.engine.released import DIFFUSIONGEMMA_26B_A4B
from openjev_server.settings import Settings
from typer.testing import CliRunner, Result

Loads = list[tuple[Settings, str]]


@pytest.fixture(params=["reproduce-seed", "ablate"])
def arguments(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    if request.param == "ablate":
        path = tmp_path / "fixtures.jsonl"
        write_fixtures(path, [fixture("n", noul(0.9))])
        return ["ablate", "--fixtures", str(path), "--only", "steps"]
    cases = make_cases(tmp_path)
    return ["reproduce-seed", "--cases", str(cases), "--fixtures", str(make_recorded(tmp_path, cases))]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loads:
    """What was loaded, and the revision that was looked up; nothing is loaded."""
    done: Loads = []
    revisions: list[str] = []

    def resolved(name: str, *, revision: str = "auto") -> Path:
        revisions.append(revision)
        return bundle.resolve_model(name)

    def refused(directory: Path, settings: Settings, *_: Any) -> None:
        done.append((settings, revisions[-1]))
        raise checkpoint.CannotLoad("not here")

    monkeypatch.setattr(local_model, "resolve_model", resolved)
    monkeypatch.setattr(checkpoint, "load_checkpoint", refused)
    monkeypatch.setattr("openjev_server.engine.loading.weights_hash", lambda _, adapter: f"with {adapter}")
    return done


def run(arguments: list[str], tmp_path: Path, *flags: str) -> Result:
    command = (ablate_cli if arguments[0] == "ablate" else reproduce_cli).app
    return CliRunner().invoke(command, [*arguments, "--model", "nano", "--out", str(tmp_path / "out"), *flags])


def test_flags_choose_what_is_loaded(arguments: list[str], loads: Loads, tmp_path: Path) -> None:
    flags = ("--adapter", str(tmp_path), "--revision", "abc", "--weights", "float8")
    done = run(arguments, tmp_path, *flags)
    assert done.exit_code == 2, done.output
    ((settings, revision),) = loads
    assert (settings.adapter, settings.weights, settings.model_revision) == (str(tmp_path), "float8", "abc")
    assert revision == "abc"


def test_so_does_the_environment(
    arguments: list[str], loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"ADAPTER": str(tmp_path), "MODEL_REVISION": "abc", "WEIGHTS": "int4"}.items():
        monkeypatch.setenv(f"OPENJEV_{name}", value)
    run(arguments, tmp_path)
    ((settings, revision),) = loads
    assert (settings.adapter, settings.weights, revision) == (str(tmp_path), "int4", "abc")


def test_the_released_model_is_asked_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert released_settings(device="cpu").model == DIFFUSIONGEMMA_26B_A4B
    assert released_settings(model="nano").model == "nano"
    monkeypatch.setenv("OPENJEV_MODEL", "/of/mine")
    assert released_settings().model == "/of/mine"


SHARED = ("--model", "--template", "--device", "--dtype", "--threads", "--weights", "--adapter", "--revision")
OTHER = {("reproduce-seed", "--template"), ("export", "--dtype")}
"""The seed's wording, and the type of what is written."""


def test_a_flag_is_the_same_wherever_it_is_taken() -> None:
    found: dict[str, set[str]] = {flag: set() for flag in SHARED}
    taken: dict[str, set[str]] = {flag: set() for flag in SHARED}

    def look(command: Any, name: str) -> None:
        for inner, below in getattr(command, "commands", {}).items():
            look(below, f"{name} {inner}")
        for option in command.params:
            for flag in set(option.opts) & taken.keys():
                taken[flag].add(name)
                if (name, flag) not in OTHER:
                    found[flag].add(option.help.partition(" Default: ")[0] if flag == "--model" else option.help)

    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    context = typer.Context(group)
    local = [name for name in COMMANDS if name not in ("agree", "record", "shadow")]
    for name in local:
        command = group.get_command(context, name)
        if command is not None:
            look(command, name)
    assert {flag: len(ways) for flag, ways in found.items()} == dict.fromkeys(SHARED, 1), found
    loading = {"serve", "ask", "doctor", "selftest record", "selftest check", "reproduce-seed", "ablate"}
    for flag in SHARED:
        assert loading <= taken[flag], flag


def test_an_adapter_that_is_not_there_is_one_line(arguments: list[str], tmp_path: Path) -> None:
    done = run(arguments, tmp_path, "--adapter", "no-such-adapter")
    assert done.exit_code == 2
    assert "No adapter 'no-such-adapter'" in done.output


def test_answers_are_kept_apart_by_adapter(tmp_path: Path, loads: Loads) -> None:
    plain, merged = (
        local_model.LocalModel(Settings(model="nano", adapter=adapter)) for adapter in (None, str(tmp_path))
    )
    assert plain.weights_hash != merged.weights_hash


def test_what_cannot_be_written_is_said_before_loading(arguments: list[str], loads: Loads, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(arguments, tmp_path, "--out", str(tmp_path / "file" / "out"))
    assert done.exit_code == 2
    (line,) = [line for line in done.output.splitlines() if "cannot write" in line]
    assert line.endswith("Not a directory")
    assert isinstance(done.exception, SystemExit)
    assert not loads
    (tmp_path / "out" / "report.json").mkdir(parents=True)
    assert "report.json: Is a directory" in run(arguments, tmp_path).output
    assert not loads
