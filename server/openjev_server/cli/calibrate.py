"""`openjev calibrate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openjev_server.cli.failure import failed
from openjev_server.cli.flags import (
    ENGINE_FLAGS,
    Adapter,
    Device,
    Dtype,
    Layout,
    Model,
    Revision,
    Steps,
    Template,
    Threads,
    Weights,
    flag_of,
    settings_from,
)

if TYPE_CHECKING:
    from openjev_server.calibration.data import Labelled
    from openjev_server.calibration.procedure import Fitted
    from openjev_server.calibration.report import Interval
    from openjev_server.cli.calibrate_answers import Answered

__all__ = ["app"]

SERVER = "A running server"

app = typer.Typer()


class Method(StrEnum):
    auto = "auto"
    temperature = "temperature"
    platt = "platt"
    vector = "vector"
    damped = "damped"
    by_count = "by_count"


@app.callback()
def group() -> None:
    """Keeps `calibrate` a named command of this module."""


@app.command()
def calibrate(
    ctx: typer.Context,
    *,
    data: Annotated[Path, typer.Option(help="JSON lines: labelled rows, or recorded answers of Jev.")],
    out: Annotated[Path, typer.Option(help="File to write; entries for other steps and layouts stay in it.")] = Path(
        "calibration.json"
    ),
    method: Annotated[
        Method, typer.Option(help="auto: by the log loss on rows that it was not fitted on.")
    ] = Method.auto,
    holdout: Annotated[float, typer.Option(min=0.05, max=0.9, help="Share of the rows that measures it.")] = 0.2,
    by: Annotated[
        str | None,
        typer.Option(
            help="`state` or a key of the lines: rows that share it are never split. Default: case, or state."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the split and the intervals.")] = 0,
    url: Annotated[
        str | None, typer.Option(help="Ask this server. Default: answer in this process.", rich_help_panel=SERVER)
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(help="Its key. Default: OPENJEV_API_KEY.", rich_help_panel=SERVER)
    ] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for it.", rich_help_panel=SERVER)] = 60.0,
    model: Model = None,
    layout: Layout = None,
    steps: Steps = None,
    template: Template = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    weights: Weights = None,
    adapter: Adapter = None,
    model_revision: Revision = None,
) -> None:
    """Fit a calibration to data with known answers, and say how much better it is on rows that were held out.

    What is written is what was measured: a map for each question type, fitted on the other rows. `serve --calibration`
    takes the file, and so does a checkpoint's directory, where it must be called calibration.json.
    """
    from openjev_server.calibration.data import DataError, read_labelled
    from openjev_server.calibration.files import CalibrationError
    from openjev_server.calibration.procedure import calibrate_rows, write_entry
    from openjev_server.writable import CannotWrite, check_files

    try:
        labelled, skipped = read_labelled(data, by=by)
    except DataError as error:
        raise failed(error, status=2) from None
    engine = {name: ctx.params[name] for name in ENGINE_FLAGS if name != "calibration"}
    if url is not None and (misplaced := [flag_of(name) for name, value in engine.items() if value is not None]):
        raise failed(f"{', '.join(misplaced)} cannot be chosen for a server (--url)", status=2)
    try:
        check_files(out)
    except CannotWrite as error:
        raise failed(error, status=2) from None
    ask = _asking(url, api_key, timeout, model, layout, steps, engine)
    answered = _ask(ask, labelled)
    try:
        fitted = calibrate_rows(labelled, answered.probabilities, method=method.value, holdout=holdout, seed=seed)
    except ValueError as error:
        raise failed(error) from None
    _print(fitted, skipped)
    scalings = {one.kind: one.scaling.model_dump() for one in fitted if one.scaling is not None}
    if not scalings:
        raise failed("nothing could be fitted", status=1)
    try:
        write_entry(
            out,
            scalings,
            model=answered.model,
            template=answered.template,
            template_hash=answered.template_hash,
            weights_hash=answered.weights_hash,
            layout=answered.layout,
            steps=answered.steps,
            fitted_on=f"{data.name}: {', '.join(f'{one.fitting} {one.kind}' for one in fitted if one.scaling)}",
        )
    except (CalibrationError, OSError) as error:
        raise failed(error) from None
    typer.echo(
        f"wrote {out} for {answered.model}@{answered.weights_hash}, {answered.template} ({answered.template_hash}), "
        f"{answered.layout}, {answered.steps} steps"
    )


Done = Callable[[int], None]


def _asking(
    url: str | None,
    api_key: str | None,
    timeout_s: float,
    model: str | None,
    layout: Any,
    steps: int | None,
    engine: dict[str, Any],
) -> Callable[[Sequence[Labelled], Done], Answered]:
    """How to ask all rows. Raises typer.Exit for settings that are not valid."""
    from openjev_server.cli.calibrate_answers import ask_here, ask_server

    if url is not None:
        return lambda rows, done: ask_server(
            url, api_key, rows, model=model, layout=layout, steps=steps, timeout_s=timeout_s, done=done
        )
    settings = settings_from(model=model, layout=layout, steps=steps, **engine)
    from openjev_server.cli.device import check_device
    from openjev_server.cli.loading import loading_bar

    check_device(settings.device)

    def here(rows: Sequence[Labelled], done: Done) -> Answered:
        with loading_bar(settings.model, settings.model_revision) as loading:
            return ask_here(settings, rows, loading, done)

    return here


def _ask(ask: Callable[[Sequence[Labelled], Done], Answered], rows: Sequence[Labelled]) -> Answered:
    from openjev_sdk import OpenJevError
    from rich.console import Console
    from rich.progress import Progress

    from openjev_server.bundle import ModelNotFound
    from openjev_server.calibration.data import DataError
    from openjev_server.canvas.prompt import PromptError
    from openjev_server.checkpoint import CannotLoad
    from openjev_server.engine.protocol import EngineError

    console = Console(stderr=True)
    try:
        with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("Asking", total=len(rows))
            return ask(rows, lambda count: progress.advance(task, count))
    except (OpenJevError, ModelNotFound, CannotLoad, EngineError, PromptError, DataError) as error:
        raise failed(error) from None


def _print(fitted: Sequence[Fitted], skipped: int) -> None:
    if skipped:
        typer.echo(f"{skipped} recorded answers without text or probabilities were left out")
    for one in fitted:
        if one.scaling is None or one.before is None or one.after is None:
            typer.echo(f"{one.kind}: {one.fitting} rows, left as it is: {one.problem}")
            continue
        typer.echo(f"{one.kind}: {_shown_method(one)}, fitted on {one.fitting} rows, measured on {one.before.n} others")
        for name, before, after in (
            ("log loss", one.before.log_loss, one.after.log_loss),
            ("ECE", one.before.ece, one.after.ece),
            ("Brier", one.before.brier, one.after.brier),
        ):
            typer.echo(f"  {name:9}{_shown(before)} -> {_shown(after)}")
        if (tasks := one.tasks_left_out) is not None:
            numbers = f"log loss {_shown(tasks.log_loss)}, ECE {_shown(tasks.ece)}, Brier {_shown(tasks.brier)}"
            typer.echo(f"  every task by a map of the other tasks: {numbers}")
    typer.echo("In brackets 95 % intervals, drawing whole groups.")


def _shown(interval: Interval) -> str:
    return f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


def _shown_method(one: Fitted) -> str:
    values = {} if one.scaling is None else one.scaling.model_dump(exclude={"method", "answers", "otherwise"})
    shown = ", ".join(f"{name} {value:.3g}" for name, value in values.items() if isinstance(value, float))
    return f"{one.method} ({shown})" if shown else one.method
