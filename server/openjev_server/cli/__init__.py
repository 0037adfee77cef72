"""The `openjev` command. A command's module is imported when that command runs, and what it needs inside it."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

import typer

from openjev_server.cli.absent import absent_package
from openjev_server.cli.lazy import LazyGroup

__all__ = ["app", "main"]

app = typer.Typer(
    name="openjev",
    cls=LazyGroup,
    help="Typed decisions with probabilities: a server for Jev clients, and its tools.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def openjev() -> None:
    """Typed decisions with probabilities: a server for Jev clients, and its tools."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that lacks a character is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        typer.main.get_command(app)(args=arguments, prog_name="openjev")
    except ModuleNotFoundError as error:
        message = absent_package(error)
        if message is None:
            raise
        sys.exit(f"openjev: {message}")
    except KeyboardInterrupt:  # older typer lets it through
        sys.exit(130)
