"""`openjev export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from openjev_server.cli.failure import failed
from openjev_server.cli.flags import Adapter, Model, Revision, settings_from

__all__ = ["app"]

app = typer.Typer()


class WeightType(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"


@app.callback()
def group() -> None:
    """Keeps `export` a named command of this module."""


@app.command()
def export(
    *,
    directory: Annotated[Path, typer.Argument(help="Directory to write; it must be new or empty.")],
    model: Model = None,
    dtype: Annotated[WeightType, typer.Option(help="Type of the written weights.")] = WeightType.float32,
    adapter: Adapter = None,
    model_revision: Revision = None,
) -> None:
    """Write a checkpoint as a plain transformers directory.

    DiffusionGemmaForBlockDiffusion.from_pretrained opens it, and so does --model. FP8 weights become plain ones, an
    adapter is merged, and vision weights that the checkpoint lacks are zeros.
    """
    settings = settings_from(model=model, adapter=adapter, model_revision=model_revision)
    import torch

    from openjev_server.bundle import ModelNotFound, resolve_adapter, resolve_model
    from openjev_server.cli.loading import loading_bar
    from openjev_server.engine.config import ConfigError
    from openjev_server.engine.export import ExportError
    from openjev_server.engine.export import export as write
    from openjev_server.engine.weights import CheckpointError
    from openjev_server.writable import CannotWrite, check_directory

    types = {WeightType.float32: torch.float32, WeightType.bfloat16: torch.bfloat16}
    try:
        check_directory(directory.absolute().parent)
        source = resolve_model(settings.model, revision=settings.model_revision)
        with loading_bar(settings.model, settings.model_revision) as progress:
            size = write(
                source,
                directory,
                dtype=types[dtype],
                adapter=resolve_adapter(settings.adapter),
                progress=progress,
            )
    except (ModelNotFound, CheckpointError, ConfigError, ExportError, CannotWrite, OSError) as error:
        raise failed(error) from None
    typer.echo(f"{directory}: {size / 1e6:.0f} MB of {dtype.value} weights")
