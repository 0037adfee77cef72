"""`openjev serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from openjev_server.cli.failure import failed
from openjev_server.cli.flags import (
    ENGINE,
    Adapter,
    Calibration,
    Decimals,
    Device,
    Dtype,
    Layout,
    Model,
    Replicas,
    Revision,
    Steps,
    Template,
    Threads,
    Weights,
    settings_from,
)

__all__ = ["app"]

NETWORK = "Network"

app = typer.Typer()


@app.callback()
def group() -> None:
    """Keeps `serve` a named command of this module."""


@app.command()
def serve(
    ctx: typer.Context,
    *,
    model: Model = None,
    host: Annotated[
        str | None,
        typer.Option(
            help="Address to bind; any but loopback needs API keys. Default: 127.0.0.1.", rich_help_panel=NETWORK
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, help="Port; 0 takes a free one and prints it. Default: 8000.", rich_help_panel=NETWORK
        ),
    ] = None,
    allow_unauthenticated: Annotated[
        bool | None,
        typer.Option(
            "--allow-unauthenticated",
            help="Bind any address without API keys.",
            show_default=False,
            rich_help_panel=NETWORK,
        ),
    ] = None,
    layout: Layout = None,
    steps: Steps = None,
    replicas: Replicas = None,
    decimals: Decimals = None,
    calibration: Calibration = None,
    template: Template = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    weights: Weights = None,
    adapter: Adapter = None,
    model_revision: Revision = None,
    engines: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=64,
            help="Engine processes; 0: the model runs in the server's own. Default: one per GPU.",
            rich_help_panel=ENGINE,
        ),
    ] = None,
) -> None:
    """Serve System One requests until Ctrl-C or SIGTERM.

    Every setting is also an environment variable OPENJEV_NAME (a flag wins); `openjev doctor` lists them all. API keys
    are read from OPENJEV_API_KEYS only, so that they do not show in the list of processes.
    """
    settings = settings_from(**ctx.params)
    from openjev_server.bundle import ModelNotFound
    from openjev_server.cli.device import check_device
    from openjev_server.cli.loading import loading_bar
    from openjev_server.serving import CannotServe
    from openjev_server.serving import serve as run

    check_device(settings.device)
    try:
        with loading_bar(settings.model, settings.model_revision) as progress:
            status = run(settings, progress)
    except (CannotServe, ModelNotFound) as error:
        raise failed(error) from None
    raise typer.Exit(status)
