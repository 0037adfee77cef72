"""Servers on real sockets with the embedded checkpoint, one process each for the whole session; foreign clients."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from live_server import LiveServer, live_server

ROOT = Path(__file__).resolve().parent.parent
KEY = "apikey_compat_tests"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with a test of several minutes first: it would be left alone at the end, and the other worker idle."""
    first = {item.path for item in items if item.get_closest_marker("longest")}
    items.sort(key=lambda item: item.path not in first)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """As shipped: no keys, unknown fields rejected."""
    with live_server(tmp_path_factory.mktemp("server") / "log") as running:
        yield running


@pytest.fixture(scope="session")
def lenient_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Unknown top-level fields are ignored."""
    with live_server(tmp_path_factory.mktemp("lenient") / "log", {"OPENJEV_UNKNOWN_FIELDS": "ignore"}) as running:
        yield running


@pytest.fixture(scope="session")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Asks for KEY; unknown top-level fields are ignored."""
    settings = {"OPENJEV_API_KEYS": f"tests={KEY}", "OPENJEV_UNKNOWN_FIELDS": "ignore"}
    with live_server(tmp_path_factory.mktemp("keyed") / "log", settings) as running:
        yield running


class RunTool(Protocol):
    def __call__(self, *command: str, settings: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture(scope="session")
def tool() -> RunTool:
    """Runs `command`, whose first word is below the repository's root, as `make tools` laid it there."""

    def run(*command: str, settings: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        program = ROOT / command[0]
        if not program.exists():
            pytest.fail(f"{command[0]} is missing: run `make tools`")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("OPENJEV_", "TYPESAFE_", "PYTHON"))}
        environment = kept | {"NO_PROXY": "127.0.0.1", "PYTHONNOUSERSITE": "1"} | (settings or {})
        return subprocess.run(
            [str(program), *command[1:]],
            cwd=ROOT / "compat_tests",
            env=environment,
            capture_output=True,
            text=True,
            timeout=2400,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def tool_json(tool: RunTool) -> Any:
    """As `tool`, for programs that print JSON: returns it, and fails with their words when they fail."""

    def run(*command: str, settings: dict[str, str] | None = None) -> Any:
        done = tool(*command, settings=settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run
