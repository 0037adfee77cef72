"""How a command ends when it cannot do what it was asked."""

from __future__ import annotations

import typer

__all__ = ["failed"]


def failed(message: object, *, status: int = 1) -> typer.Exit:
    """Says why in one line on stderr, and returns what to raise: `raise failed(...)`."""
    typer.echo(f"openjev: {message}", err=True)
    return typer.Exit(status)
