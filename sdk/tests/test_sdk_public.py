"""What the package promises as a whole: its names, and what it needs."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import openjev_sdk
import pytest
from openjev_sdk import compat

ROOT = Path(openjev_sdk.__file__).parent
MODULES = [m.name for m in pkgutil.walk_packages([str(ROOT)], "openjev_sdk.")]


def rank(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("name", ["openjev_sdk", *MODULES])
def test_all_is_sorted_and_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert list(module.__all__) == sorted(module.__all__, key=rank)
    assert all(hasattr(module, public) for public in module.__all__)


@pytest.mark.parametrize("module", [openjev_sdk, compat])
def test_all_is_complete(module: ModuleType) -> None:
    submodules = {name.rpartition(".")[2] for name in MODULES} - {"constants"}
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and name not in submodules and name != "annotations"
    }
    assert public | {"__version__"} == set(module.__all__)


def test_every_exception_can_be_imported_from_the_top() -> None:
    errors = importlib.import_module("openjev_sdk._errors")
    classes = {n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, openjev_sdk.OpenJevError)}
    assert classes <= set(openjev_sdk.__all__)
    assert all(name in (errors.__doc__ or "") for name in classes)


def test_httpx_is_the_only_dependency() -> None:
    imported = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"httpx", "openjev_sdk"}


def test_importing_it_loads_nothing_heavy() -> None:
    code = (
        "import sys, openjev_sdk, openjev_sdk.compat; print({'pydantic', 'torch', 'openjev_server'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert shown.stdout.strip() == "set()"


def test_it_is_marked_as_typed() -> None:
    assert (ROOT / "py.typed").is_file()
