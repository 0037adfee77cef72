"""Stages as commands: `python -m openjev_training prepare|convert|train|report|...`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .architecture import NANO

app = typer.Typer(no_args_is_help=True, add_completion=False)
Folder = Annotated[Path, typer.Option(file_okay=False)]


@app.command()
def prepare(data: Folder, out: Folder) -> None:
    """Public data -> rows and texts behind the wall, and the measuring sets."""
    from .prepare import prepare as run

    typer.echo(json.dumps(run(data, out)))


@app.command()
def convert(gguf: Path, data: Folder, tokenizer: Path, out: Path) -> None:
    """SmolLM2's GGUF -> the warm start file."""
    from .convert import write_warm_start

    write_warm_start(gguf, data, tokenizer, out)


@app.command()
def train(
    prepared: Folder,
    tokenizer: Folder,
    out: Folder,
    plan: Path,
    warm: Path | None = None,
    device: str = "cuda",
    workers: int = 14,
    length: int = 65536,
) -> None:
    """Runs the phases of a plan (JSON list, see `train.Phase`)."""
    from .train import Phase, Settings
    from .train import train as run

    phases = [Phase(**raw) for raw in json.loads(plan.read_text())]
    settings = Settings(prepared, tokenizer, warm, out, device, length, workers, compiled=device == "cuda")
    run(settings, phases, NANO)


if __name__ == "__main__":
    app()
