"""The command `reproduce-seed`."""

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
    Threads,
    TokenBudget,
    Weights,
    released_settings,
)
from openjev_server.writable import CannotWrite
from rich.console import Console

from .store import FixtureError

__all__ = ["app", "reproduce_seed"]

app = typer.Typer()


@app.callback()
def group() -> None:
    """Keeps `reproduce-seed` a named command of this module."""


@app.command("reproduce-seed")
def reproduce_seed(
    *,
    cases: Annotated[Path, typer.Option(help="Directory of the downloaded <workflow>-cases.js files.")],
    model: ReleasedModel = None,
    template: Annotated[
        str, typer.Option(help="A file with the seed's own wording (judged more strictly), else seed.")
    ] = "seed",
    our_template: Annotated[str, typer.Option(help="What our own modes ask with.")] = "auto",
    out: Annotated[Path, typer.Option(help="Directory of the answers and reports; a run goes on there.")] = Path(
        "reproduce-seed"
    ),
    fixtures: Annotated[
        Path | None, typer.Option(help="Recorded answers of Jev and the seed. Default: this checkout's.")
    ] = None,
    modes: Annotated[str, typer.Option(help="Numbers of the modes to run: 1-3 the seed's, 4-5 ours.")] = "1,2,3,4,5",
    nodes: Annotated[int | None, typer.Option(min=1, help="Only the first so many nodes (requests).")] = None,
    resume: Annotated[bool, typer.Option(help="Keep the answers of an earlier run.")] = True,
    url: Annotated[str | None, typer.Option(help="Ask this server instead; our own modes only.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="OPENJEV_API_KEY")] = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    weights: Weights = None,
    adapter: Adapter = None,
    model_revision: Revision = None,
    token_budget: TokenBudget = None,
) -> None:
    """Ask the 408 public questions as the seed did and as we do, and say whether its recorded answers come out.

    Exits 0 for PASS, 1 for FAIL, 2 when the inputs cannot be used, 3 when requests failed, 4 without a verdict:
    there is one only where all three modes of the seed answered all 408 questions.
    """
    from .reproduce_run import ReproduceOptions, reproduce

    settings = released_settings(
        model=model,
        device=device,
        dtype=dtype,
        threads=threads,
        weights=weights,
        adapter=adapter,
        model_revision=model_revision,
        token_budget=token_budget,
    )
    if url is None:
        check_device(settings.device)
    options = ReproduceOptions(
        cases=cases,
        settings=settings,
        template=template,
        our_template=our_template,
        out=out,
        fixtures=fixtures,
        modes=modes,
        nodes=nodes,
        resume=resume,
        url=url,
        api_key=api_key,
    )
    from .reproduce_output import markdown, print_seed_report

    try:
        report = reproduce(options, Console(stderr=True))
    except (FixtureError, CannotWrite) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    print_seed_report(report, Console())
    (out / "report.json").write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    (out / "report.md").write_text(markdown(report), encoding="utf-8")
    if report.failures:
        raise typer.Exit(3)
    raise typer.Exit({True: 0, False: 1, None: 4}[report.passed])
