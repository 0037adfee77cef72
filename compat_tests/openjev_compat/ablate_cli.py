"""The command `ablate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from openjev_server.cli.device import check_device
from openjev_server.cli.flags import (
    Adapter,
    Device,
    Dtype,
    ReleasedModel,
    Revision,
    Template,
    Threads,
    TokenBudget,
    Weights,
    released_settings,
)
from openjev_server.writable import CannotWrite
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
    model: ReleasedModel = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Of thought, tail, width, order, layout, steps, noise, conditioning, weights, seed; with commas."
        ),
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Only the first so many nodes (requests).")] = None,
    out: Annotated[Path, typer.Option(help="Directory of the answers and reports; a run goes on there.")] = Path(
        "ablate"
    ),
    resume: Annotated[bool, typer.Option(help="Keep the answers of an earlier run.")] = True,
    template: Template = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    weights: Weights = None,
    adapter: Adapter = None,
    model_revision: Revision = None,
    token_budget: TokenBudget = None,
) -> None:
    """Change one thing at a time about how a checkpoint is asked, and compare with Jev and the references.

    The base is --template, isolated, 2 steps; what cannot be varied about it is listed, with the reason.

    Exits 0, 2 when the inputs cannot be used, 3 when requests failed.
    """
    from .ablate_output import ablation_markdown, print_ablation
    from .ablate_run import AblateOptions
    from .ablate_run import ablate as run

    settings = released_settings(
        model=model,
        template=template,
        device=device,
        dtype=dtype,
        threads=threads,
        weights=weights,
        adapter=adapter,
        model_revision=model_revision,
        token_budget=token_budget,
    )
    check_device(settings.device)
    options = AblateOptions(
        settings=settings,
        cases=cases,
        fixtures=tuple(fixtures or ()),
        only=only,
        nodes=nodes,
        out=out,
        resume=resume,
    )
    try:
        report = run(options, Console(stderr=True))
    except (FixtureError, CannotWrite) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    print_ablation(report, Console())
    (out / "report.json").write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    (out / "report.md").write_text(ablation_markdown(report), encoding="utf-8")
    if report.failures:
        raise typer.Exit(3)
