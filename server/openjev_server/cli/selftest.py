"""`openjev selftest`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openjev_server.cli.failure import failed
from openjev_server.cli.flags import Device, Dtype, Model, Template, Threads, settings_from

if TYPE_CHECKING:
    from openjev_server.bundle import ModelBundle
    from openjev_server.canvas.compile import Compiler
    from openjev_server.engine.protocol import Engine
    from openjev_server.settings import Settings

__all__ = ["app"]

app = typer.Typer()
selftest = typer.Typer(help="Check a checkpoint's answers against recorded ones.", no_args_is_help=True)
app.add_typer(selftest, name="selftest")

File = Annotated[
    Path | None, typer.Option("--file", help="The recording. Default: self_test.json in the checkpoint's directory.")
]


@selftest.command()
def record(
    *,
    model: Model = None,
    file: File = None,
    template: Template = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
) -> None:
    """Write this machine's answers as what every later load must give."""
    settings = settings_from(model=model, template=template, device=device, dtype=dtype, threads=threads)
    bundle, compiler, engine = _loaded(settings)
    from openjev_server.engine.protocol import EngineError
    from openjev_server.self_test import FILE_NAME
    from openjev_server.self_test import record as write

    path = file or bundle.directory / FILE_NAME
    try:
        recording = write(engine, compiler, bundle.id, path)
    except (EngineError, OSError) as error:
        raise failed(error) from None
    questions = sum(map(len, recording.prompts.values()))
    typer.echo(f"{path}: {questions} answers of {bundle.id}@{recording.weights_hash} under {recording.template}")


@selftest.command()
def check(
    *,
    model: Model = None,
    file: File = None,
    tolerance: Annotated[
        float | None, typer.Option(min=0, max=1, help="Largest difference of a probability. Default: the dtype's.")
    ] = None,
    template: Template = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
) -> None:
    """Ask the recorded prompts again, and exit 1 where the answers differ by more than rounding does."""
    settings = settings_from(model=model, template=template, device=device, dtype=dtype, threads=threads)
    bundle, compiler, engine = _loaded(settings)
    from openjev_server.engine.protocol import EngineError
    from openjev_server.self_test import FILE_NAME, SelfTestError
    from openjev_server.self_test import check as compare

    try:
        result = compare(engine, compiler, file or bundle.directory / FILE_NAME, tolerance=tolerance)
    except (EngineError, SelfTestError) as error:
        raise failed(error) from None
    for problem in result.problems:
        typer.echo(problem)
    verdict = "FAIL" if result.problems else "ok"
    typer.echo(
        f"{verdict}: {result.questions} answers, the largest difference is {result.difference:.5f} at "
        f"{result.where!r} (tolerance {result.tolerance:g}, {engine.info.dtype} on {engine.info.device})"
    )
    raise typer.Exit(1 if result.problems else 0)


def _loaded(settings: Settings) -> tuple[ModelBundle, Compiler, Engine]:
    """Raises typer.Exit after saying why not."""
    from openjev_server.bundle import ModelNotFound, load_bundle, resolve_model
    from openjev_server.canvas.compile import Compiler
    from openjev_server.checkpoint import open_engine
    from openjev_server.cli.device import check_device
    from openjev_server.cli.loading import loading_bar
    from openjev_server.engine.config import ConfigError
    from openjev_server.engine.weights import CheckpointError

    check_device(settings.device)
    try:
        bundle = load_bundle(resolve_model(settings.model), template=settings.template)
        with loading_bar(settings.model) as progress:
            engine = open_engine(bundle.directory, settings, progress)
    except (ModelNotFound, CheckpointError, ConfigError, FileNotFoundError) as error:
        raise failed(error) from None
    return bundle, Compiler(bundle.tokenizer, bundle.template), engine
