"""`openjev selftest`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openjev_server.cli.failure import failed
from openjev_server.cli.flags import (
    ENGINE_FLAGS,
    Adapter,
    Device,
    Dtype,
    Model,
    Revision,
    Template,
    Threads,
    Weights,
    settings_from,
)

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
    ctx: typer.Context,
    *,
    model: Model = None,
    file: File = None,
    template: Template = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    weights: Weights = None,
    adapter: Adapter = None,
    model_revision: Revision = None,
) -> None:
    """Write this machine's answers as what every later load must give."""
    loaded = _loaded(_settings(ctx), file, writing=True)
    from openjev_server.engine.protocol import EngineError
    from openjev_server.self_test import record as write

    bundle, path = loaded.bundle, loaded.file
    try:
        recording = write(loaded.engine, loaded.compiler, path, model=bundle.id, weights_hash=loaded.weights_hash)
    except (EngineError, OSError) as error:
        raise failed(error) from None
    questions = sum(map(len, recording.prompts.values()))
    typer.echo(f"{path}: {questions} answers of {bundle.id}@{recording.weights_hash} under {recording.template}")


@selftest.command()
def check(
    ctx: typer.Context,
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
    weights: Weights = None,
    adapter: Adapter = None,
    model_revision: Revision = None,
) -> None:
    """Ask the recorded prompts again, and exit 1 where the answers differ by more than rounding does."""
    loaded = _loaded(_settings(ctx), file, writing=False)
    from openjev_server.engine.protocol import EngineError
    from openjev_server.self_test import SelfTestError
    from openjev_server.self_test import check as compare

    try:
        result = compare(
            loaded.engine, loaded.compiler, loaded.file, weights_hash=loaded.weights_hash, tolerance=tolerance
        )
    except (EngineError, SelfTestError) as error:
        raise failed(error) from None
    for problem in result.problems:
        typer.echo(problem)
    info = loaded.engine.info
    verdict = "FAIL" if result.problems else "ok"
    typer.echo(
        f"{verdict}: {result.questions} answers, the largest difference is {result.difference:.5f} at "
        f"{result.where!r} (tolerance {result.tolerance:g}, {info.dtype} on {info.device})"
    )
    raise typer.Exit(1 if result.problems else 0)


def _settings(ctx: typer.Context) -> Settings:
    return settings_from(**{name: value for name, value in ctx.params.items() if name in ("model", *ENGINE_FLAGS)})


@dataclass(frozen=True, slots=True)
class _Loaded:
    bundle: ModelBundle
    compiler: Compiler
    engine: Engine
    weights_hash: str
    file: Path
    """The recording."""


def _loaded(settings: Settings, file: Path | None, *, writing: bool) -> _Loaded:
    """Raises typer.Exit after saying why not; what `writing` needs is checked before the checkpoint is loaded."""
    from openjev_server.bundle import ModelNotFound, load_bundle, resolve_adapter, resolve_model
    from openjev_server.canvas.compile import Compiler
    from openjev_server.checkpoint import CannotLoad, load_checkpoint
    from openjev_server.cli.device import check_device
    from openjev_server.cli.loading import loading_bar
    from openjev_server.engine.loading import weights_hash
    from openjev_server.self_test import FILE_NAME
    from openjev_server.writable import CannotWrite, check_files

    check_device(settings.device)
    try:
        directory = resolve_model(settings.model, revision=settings.model_revision)
        path = file or directory / FILE_NAME
        if writing:
            check_files(path)
        bundle = load_bundle(directory, template=settings.template)
        with loading_bar(settings.model, settings.model_revision) as progress:
            engine = load_checkpoint(directory, settings, progress)
        files = weights_hash(directory, adapter=resolve_adapter(settings.adapter))
    except (ModelNotFound, CannotLoad, CannotWrite) as error:
        raise failed(error) from None
    return _Loaded(bundle, Compiler(bundle.tokenizer, bundle.template), engine, files, path)
