"""The command `ablate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from openjev_server.cli.flags import Adapter, Revision, Weights
from rich.console import Console

from .store import FixtureError

__all__ = ["ablate", "app"]

app = typer.Typer()


@app.callback()
def group() -> None:
    """Keeps `ablate` a named command of this module."""


@app.command()
def ablate(
    *,
    cases: Annotated[Path | None, typer.Option(help="Directory of downloaded <workflow>-cases.js files.")] = None,
    fixtures: Annotated[
        list[Path] | None, typer.Option(help="Recorded answers with texts. Default: this checkout's.")
    ] = None,
    model: Annotated[str, typer.Option(help="Checkpoint directory, hub id, or nano.")] = (
        "google/diffusiongemma-26B-A4B-it"
    ),
    template: Annotated[str, typer.Option(help="The template to start from.")] = "auto",
    only: Annotated[
        str | None,
        typer.Option(help="Of thought, tail, width, order, layout, steps, noise, conditioning, weights, seed."),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Only the first so many nodes (requests).")] = None,
    out: Annotated[Path, typer.Option(help="Directory of the answers and reports; a run goes on there.")] = Path(
        "ablate"
    ),
    resume: Annotated[bool, typer.Option(help="Keep the answers of an earlier run.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    weights: Weights = None,
    adapter: Adapter = None,
    revision: Revision = None,
    token_budget: Annotated[int, typer.Option(min=256, help="Tokens of one pass.")] = 8192,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
) -> None:
    """Change one thing at a time about how a checkpoint is asked, and compare with Jev and the references.

    Exits 0, 2 when the inputs cannot be used, 3 when requests failed.
    """
    from .ablate_output import ablation_markdown, print_ablation
    from .ablate_run import AblateOptions
    from .ablate_run import ablate as run
    from .local_model import Load

    options = AblateOptions(
        load=Load(model, device, dtype, weights, token_budget, threads, adapter, revision),
        cases=cases,
        fixtures=tuple(fixtures or ()),
        template=template,
        only=only,
        nodes=nodes,
        out=out,
        resume=resume,
    )
    try:
        report = run(options, Console(stderr=True))
    except FixtureError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    print_ablation(report, Console())
    (out / "report.json").write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    (out / "report.md").write_text(ablation_markdown(report), encoding="utf-8")
    if report.failures:
        raise typer.Exit(3)
