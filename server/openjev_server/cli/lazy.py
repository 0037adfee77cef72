"""A command group that imports a command's module only when that command is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["COMMANDS", "LazyGroup", "Source"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a command comes from."""

    module: str
    name: str
    """The command's name in the module's `app`."""


def _own(name: str) -> Source:
    return Source(f"openjev_server.cli.{name}", name)


def _compat(name: str, module: str = "cli") -> Source:
    return Source(f"openjev_compat.{module}", name)


COMMANDS: Mapping[str, Source] = {
    "serve": _own("serve"),
    "ask": _own("ask"),
    "doctor": _own("doctor"),
    "calibrate": _own("calibrate"),
    "export": _own("export"),
    "template": _own("template"),
    "selftest": _own("selftest"),
    "agree": _compat("agree"),
    "record": _compat("record"),
    "shadow": _compat("shadow"),
    "import-cases": _compat("import-cases"),
    "reproduce-seed": _compat("reproduce-seed", "reproduce_cli"),
    "ablate": _compat("ablate", "ablate_cli"),
}
"""In the order of the help. Every module has a `typer.Typer` named `app`."""


class LazyGroup(TyperGroup):
    """The commands of `COMMANDS` whose package is there."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name, source in COMMANDS.items() if _is_there(source.module)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        source = COMMANDS.get(cmd_name)
        if source is None or not _is_there(source.module):
            return None
        command = typer.main.get_group(import_module(source.module).app)
        found = command.get_command(ctx, source.name)
        if found is not None:
            found.name = cmd_name
        return found


def _is_there(module: str) -> bool:
    """Whether the module could be imported; imports its parent packages only."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
