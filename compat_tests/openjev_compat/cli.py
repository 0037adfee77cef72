"""The commands `agree`, `record`, `shadow` and `import-cases`."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Annotated, get_args

import typer
from openjev_server.writable import CannotWrite, check_directory, check_files
from rich.console import Console

from .fixture import QuestionType
from .store import FixtureError, write_fixtures

__all__ = ["agree", "app", "import_cases", "record", "shadow"]

_LOOPBACK = "http://127.0.0.1:8000"

app = typer.Typer(help="Agreement with Jev.", no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def agree(
    *,
    left: Annotated[list[Path] | None, typer.Option(help="Fixtures with our answers (file or directory).")] = None,
    right: Annotated[list[Path] | None, typer.Option(help="Fixtures with the answers to be like.")] = None,
    url: Annotated[str | None, typer.Option(help="Ask this server instead of --left.")] = None,
    fixtures: Annotated[list[Path] | None, typer.Option(help="With --url: what to ask and compare with.")] = None,
    right_url: Annotated[str | None, typer.Option(help="Ask this server too, instead of its recorded answers.")] = None,
    api_key: Annotated[str | None, typer.Option(help="For --url.", envvar="OPENJEV_API_KEY")] = None,
    right_api_key: Annotated[str | None, typer.Option(help="For --right-url.", envvar="TYPESAFE_API_KEY")] = None,
    model: Annotated[str, typer.Option(help="Model to ask for.")] = "jev-latest",
    on: Annotated[str | None, typer.Option(help="Only this data set, or data set/workflow.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Only noul, choice or score.")] = None,
    steps: Annotated[int | None, typer.Option(help="Denoising steps: chosen on the left, or asked for.")] = None,
    layout: Annotated[str | None, typer.Option(help="Layout to ask for: isolated or grouped.")] = None,
    decimals: Annotated[int | None, typer.Option(help="Decimals to ask for.")] = None,
    run: Annotated[str | None, typer.Option(help="Run of the left side, by name.")] = None,
    names: Annotated[tuple[str, str] | None, typer.Option(help="What to call the two sides.")] = None,
    threshold: Annotated[
        float, typer.Option(help="P(true) at which both sides' yes/no answers are split, in one metric.")
    ] = 0.5,
    gate: Annotated[float, typer.Option(help="Confidence from which an answer is acted upon.")] = 0.9,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests on their way at a time.")] = 4,
    timeout: Annotated[float, typer.Option(help="Seconds for one attempt.")] = 60.0,
    answers: Annotated[Path | None, typer.Option(help="Keep live answers here, and resume from it.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write report.json, report.md and report.html here.")] = None,
    json_out: Annotated[Path | None, typer.Option("--json", help="Write the report as JSON.")] = None,
    markdown_out: Annotated[Path | None, typer.Option("--markdown", help="Write the report as Markdown.")] = None,
    html_out: Annotated[Path | None, typer.Option("--html", help="Write the report as one HTML page.")] = None,
    texts: Annotated[bool, typer.Option(help="Put states and questions into the report.")] = True,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the verdict only.")] = False,
    usd_per_million_input: Annotated[float | None, typer.Option(help="Price of a hosted API.")] = None,
    usd_per_hour: Annotated[float | None, typer.Option(help="Price of the machine that answers.")] = None,
    fail_under: Annotated[float | None, typer.Option(help="Exit 1 unless the metric reaches this.")] = None,
    metric: Annotated[str, typer.Option(help="For --fail-under.")] = "agreement",
    strict: Annotated[bool, typer.Option("--strict", help="Judge the interval's worse end.")] = False,
) -> None:
    """Compare answers with Jev's, recorded or live, and write the report.

    Exits 1 when --fail-under is missed, 2 when the inputs cannot be used, 3 when requests failed.
    """
    from .comparison import Comparison, LiveSide, NoAnswer, RecordedSide, compare
    from .cost import Prices
    from .gate import judge
    from .metrics import Thresholds
    from .output import MissingExtraError, check_html, without_texts, write_report
    from .pairing import Selection
    from .terminal import print_report

    console = Console()
    if (left is None) == (url is None) or (right is None) == (fixtures is None):
        raise typer.BadParameter("give --left and --right, or --url and --fixtures (--left and --fixtures work too)")
    if right_url is not None and url is None:
        raise typer.BadParameter("--right-url needs --url: it asks the same questions again")
    _check_numbers(threshold=threshold, gate=gate, fail_under=fail_under, levels=metric == "score_error")
    if type_ is not None and type_ not in get_args(QuestionType):
        raise typer.BadParameter(f"--type is one of {', '.join(get_args(QuestionType))}, not {type_}")
    json_path = json_out or (out / "report.json" if out else None)
    markdown_path = markdown_out or (out / "report.md" if out else None)
    html_path = html_out or (out / "report.html" if out else None)
    jev = RecordedSide(tuple(right or fixtures or ()))
    if url is not None:
        ours: RecordedSide | LiveSide = LiveSide(url, api_key, model, steps, layout, decimals, answers)
    else:
        ours = RecordedSide(tuple(left or ()))
    try:
        if html_path is not None:
            check_html()
        check_files(json_path, markdown_path, html_path, answers if url is not None else None)
        result = compare(
            Comparison(
                left=ours,
                right=jev,
                right_live=LiveSide(right_url, right_api_key, model, None, None, None, None) if right_url else None,
                selection=Selection(on=on, type=type_),
                steps=steps,
                run=run,
                names=names,
                thresholds=Thresholds(threshold, gate),
                prices=Prices(usd_per_million_input, usd_per_hour),
                concurrency=concurrency,
                timeout_s=timeout,
            ),
            Console(stderr=True, quiet=quiet),
        )
        report = result.report if texts else without_texts(result.report)
        if not quiet:
            print_report(report, console)
        write_report(
            report,
            json_path=json_path,
            markdown_path=markdown_path,
            html_path=html_path,
        )
        verdict = judge(report.overall, metric, fail_under, strict=strict) if fail_under is not None else None
    except (FixtureError, MissingExtraError, CannotWrite) as error:
        raise _refused(error) from None
    except NoAnswer as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(3) from None
    for failure in result.failures[:10]:
        typer.echo(f"failed: {failure}", err=True)
    if verdict is not None:
        typer.echo(f"{'pass' if verdict.passed else 'FAIL'}: {verdict.reason}", err=not verdict.passed)
        if not verdict.passed:
            raise typer.Exit(1)
    if result.failures:
        typer.echo(f"{len(result.failures)} requests failed", err=True)
        raise typer.Exit(3)


@app.command()
def record(
    *,
    requests: Annotated[Path, typer.Option(help="Request bodies: a JSON array, or one JSON object a line.")],
    out: Annotated[Path, typer.Option(help="The fixture file to write; an interrupted run goes on there.")],
    url: Annotated[str, typer.Option(help="The server to ask.")] = _LOOPBACK,
    api_key: Annotated[str | None, typer.Option(envvar="OPENJEV_API_KEY")] = None,
    model: Annotated[str, typer.Option(help="Model to ask for.")] = "jev-latest",
    workflow: Annotated[str, typer.Option(help="The name under which --on finds these questions.")] = "recorded",
    licence: Annotated[str, typer.Option(help="What may be done with the texts.")] = "private",
    steps: Annotated[int | None, typer.Option(help="Denoising steps to ask for.")] = None,
    layout: Annotated[str | None, typer.Option(help="Layout to ask for: isolated or grouped.")] = None,
    decimals: Annotated[int | None, typer.Option(help="Decimals to ask for.")] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests on their way at a time.")] = 4,
    timeout: Annotated[float, typer.Option(help="Seconds for one attempt.")] = 60.0,
) -> None:
    """Ask a server and keep its answers as fixtures. Exits 3 when requests failed."""
    from .asking import read_requests
    from .comparison import LiveSide, ask_live

    side = LiveSide(url, api_key, model, steps, layout, decimals, out)
    try:
        asks = read_requests(requests, workflow=workflow, licence=licence)
        check_files(out)
        run = ask_live(side, asks, concurrency=concurrency, timeout_s=timeout, console=Console(stderr=True))
    except (FixtureError, CannotWrite) as error:
        raise _refused(error) from None
    typer.echo(f"{write_fixtures(out, run.fixtures)} answers in {out}")  # in the order of the requests
    for failure in run.failures[:10]:
        typer.echo(f"failed: {failure}", err=True)
    if run.failures:
        raise typer.Exit(3)


@app.command()
def shadow(
    *,
    upstream: Annotated[str, typer.Option(help="The API whose answers are served, as a root URL.")],
    out: Annotated[Path, typer.Option(help="Directory for upstream.jsonl and engine.jsonl.")],
    sample: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of requests to ask our engine too.")] = 0.1,
    engine: Annotated[str, typer.Option(help="Our server.")] = _LOOPBACK,
    engine_api_key: Annotated[str | None, typer.Option(envvar="OPENJEV_API_KEY")] = None,
    host: Annotated[str, typer.Option()] = "127.0.0.1",
    port: Annotated[int, typer.Option()] = 8010,
    queued: Annotated[int, typer.Option(min=1, help="Requests that may wait for the engine; more are dropped.")] = 256,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the upstream.")] = 60.0,
    max_body_bytes: Annotated[int, typer.Option(help="Larger requests are refused with 413.")] = 32 * 1024 * 1024,
) -> None:
    """Serve an upstream's answers byte for byte and ask our engine a sample of the same questions."""
    import uvicorn
    from openjev_sdk import AsyncClient, UsageError

    from .mirror import PairFiles
    from .shadow import ShadowSettings, create_shadow_app

    try:
        check_files(*PairFiles(out).paths)
        settings = ShadowSettings(
            upstream=upstream, sample=sample, queued=queued, timeout_s=timeout, max_body_bytes=max_body_bytes
        )
        client = AsyncClient(engine, engine_api_key, timeout=timeout)
    except (CannotWrite, UsageError) as error:
        raise _refused(error) from None
    # The upstream's own Server and Date headers come through.
    uvicorn.run(
        create_shadow_app(settings, client, PairFiles(out)),
        host=host,
        port=port,
        log_level="info",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
    )


@app.command("import-cases")
def import_cases(
    files: Annotated[list[Path], typer.Argument(help="Downloaded <workflow>-cases.js files.")],
    out: Annotated[Path, typer.Option(help="Directory for <workflow>.<model>.jsonl; keep it to yourself.")],
    recorded_at: Annotated[str | None, typer.Option(help="Date of the recording; today when left out.")] = None,
) -> None:
    """Convert case files of the public evaluation pages to fixtures."""
    from .cases import import_cases as convert

    try:
        check_directory(out)
    except CannotWrite as error:
        raise _refused(error) from None
    written: dict[Path, str] = {}
    for file in files:
        try:
            models = convert(file, recorded_at=recorded_at or datetime.now(UTC).date().isoformat())
        except (FixtureError, OSError) as error:
            raise _refused(error) from None
        for model, fixtures in models.items():
            name = "".join(character if character.isalnum() or character in "._-" else "_" for character in model)
            path = out / f"{file.stem.removesuffix('-cases')}.{name}.jsonl"
            if path in written:
                raise _refused(FixtureError(f"{path} would hold {model} of {file}, and holds {written[path]}"))
            written[path] = f"{model} of {file}"
            typer.echo(f"{write_fixtures(path, fixtures):5d} {path}")


def _check_numbers(*, threshold: float, gate: float, fail_under: float | None, levels: bool) -> None:
    """Raises BadParameter; a NaN lies in no range. With `levels` the limit is in levels of a score, not a share."""
    if not 0 < threshold < 1:
        raise typer.BadParameter(f"--threshold lies between 0 and 1, both left out, not {threshold:g}")
    if not 0 <= gate <= 1:
        raise typer.BadParameter(f"--gate lies between 0 and 1, not {gate:g}")
    if fail_under is not None and not (0 <= fail_under < inf if levels else 0 <= fail_under <= 1):
        raise typer.BadParameter(
            f"--fail-under {'is 0 or more' if levels else 'lies between 0 and 1'}, not {fail_under:g}"
        )


def _refused(error: Exception) -> typer.Exit:
    typer.echo(f"error: {error}", err=True)
    return typer.Exit(2)


if __name__ == "__main__":
    app()
