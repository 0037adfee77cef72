"""The wheels of both distributions, built and installed beside the dependencies that are here already."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SERVER_FILES = {
    "openjev_server/models/nano/config.json",
    "openjev_server/models/nano/tokenizer.json",
    "openjev_server/models/nano/model.q4.safetensors",
    "openjev_server/models/nano/MODEL_CARD.md",
    "openjev_server/py.typed",
}
QUESTIONS = {"queue": {"type": "choice", "criteria": {"billing": "Payments, refunds", "weather": "Rain"}}}


def run(*command: str, stdin: str | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OPENJEV_", "PYTHON"))}
    done = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Distribution name -> wheel."""
    folder = tmp_path_factory.mktemp("wheels")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT / "sdk"), str(ROOT))
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that has the wheels, and the dependencies (but not the editable installs) of this one."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, with_pip=False, symlinks=True)
    inside = subprocess.check_output(
        [folder / "bin/python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    target = ["--prefix", str(folder), "--no-deps", "--ignore-installed", "--no-warn-script-location"]
    run(sys.executable, "-m", "pip", "install", "-q", *target, *map(str, wheels.values()))
    # A path in a .pth file is searched for modules, but its own .pth files (the editable installs) are not read.
    Path(inside, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_contents(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {"openjev_canvas", "openjev_canvas_sdk"}
    names = {name: set(zipfile.ZipFile(path).namelist()) for name, path in wheels.items()}
    assert names["openjev_canvas"] >= SERVER_FILES
    assert {name.split("/")[0] for name in names["openjev_canvas"]} - {"openjev_server", "openjev_compat"} == {
        "openjev_canvas-0.1.0.dist-info"
    }
    assert {"openjev_sdk/__init__.py", "openjev_sdk/py.typed"} <= names["openjev_canvas_sdk"]
    parts = {part for found in names.values() for name in found for part in Path(name).parts}
    assert not [part for part in parts if part in {"tests", "conftest.py"} or part.startswith("test_")]
    assert wheels["openjev_canvas_sdk"].stat().st_size < 200_000


def test_answers_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    where = run(
        str(installed / "bin/python"), "-c", "import openjev_server, openjev_sdk; print(openjev_server.__file__)"
    )
    assert where.startswith(str(installed))
    questions = tmp_path / "questions.json"
    questions.write_text(json.dumps(QUESTIONS))
    state = "I was charged twice for the same order."
    words = ["ask", "--questions", str(questions), "--json", "-"]
    answer = json.loads(run(str(installed / "bin/openjev"), *words, stdin=state))
    assert answer["answers"]["queue"]["choice"] == "billing"
