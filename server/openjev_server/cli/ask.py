"""`openjev ask`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openjev_server.cli.failure import failed
from openjev_server.cli.flags import (
    ANSWER_FLAGS,
    ENGINE_FLAGS,
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
    flag_of,
    settings_from,
)

if TYPE_CHECKING:
    from openjev_server.cli.table import Answered

__all__ = ["app"]

QUESTIONS = "Questions"
SERVER = "Server"

app = typer.Typer()


@app.callback()
def group() -> None:
    """Keeps `ask` a named command of this module."""


@app.command()
def ask(
    ctx: typer.Context,
    *,
    file: Annotated[
        str | None,
        typer.Argument(help="File that holds the state, `-` for stdin; a .json file is read as JSON, others as text."),
    ] = None,
    state: Annotated[str | None, typer.Option(help="The state itself, in place of a file.")] = None,
    noul: Annotated[
        list[str] | None, typer.Option(help='Yes or no: "Is it urgent?"', rich_help_panel=QUESTIONS)
    ] = None,
    choice: Annotated[
        list[str] | None,
        typer.Option(
            help='One of several: "Which team?=billing:payments and refunds,sales"', rich_help_panel=QUESTIONS
        ),
    ] = None,
    score: Annotated[
        list[str] | None,
        typer.Option(help='Levels, lowest first: "How angry?=calm|annoyed|furious"', rich_help_panel=QUESTIONS),
    ] = None,
    questions: Annotated[
        str | None,
        typer.Option(
            help="JSON file of questions by id, or of a whole request; `-` for stdin.", rich_help_panel=QUESTIONS
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the response as JSON.")] = False,
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
) -> None:
    """Ask questions about a text, and print the answers with their probabilities.

    Question flags can be repeated. A backslash before one of = , : | takes its meaning from it, and a question that
    starts with @NAME and a blank is called NAME: --choice "@team Which team?=billing,sales".
    """
    text, asked = _inputs(file, state, noul or [], choice or [], score or [], questions)
    engine_flags = {name: ctx.params[name] for name in ENGINE_FLAGS}
    answer_flags = {name: ctx.params[name] for name in ANSWER_FLAGS}
    if url is not None:
        misplaced = [flag_of(name) for name, value in engine_flags.items() if value is not None]
        if misplaced:
            raise failed(f"{', '.join(misplaced)} cannot be chosen for a server (--url)", status=2)
        answered = _ask_server(url, api_key, model, timeout, text, asked, answer_flags)
    else:
        answered = _ask_here(text, asked, model=model, **engine_flags, **answer_flags)
    _print(asked, answered, as_json=as_json)


def _inputs(
    file: str | None, state: str | None, nouls: list[str], choices: list[str], scores: list[str], questions: str | None
) -> tuple[Any, dict[str, Any]]:
    """The state and the questions. Raises typer.Exit (2)."""
    from openjev_server.cli.inputs import STDIN, InputError, read_questions, read_state
    from openjev_server.cli.syntax import QuestionSyntaxError, questions_from_flags

    if file is not None and state is not None:
        raise failed("give a file or --state, not both", status=2)
    try:
        asked: dict[str, Any] = dict(questions_from_flags(nouls, choices, scores))
        text: Any = state
        if questions is not None:
            read = read_questions(questions)
            if twice := sorted(asked.keys() & read.questions.keys()):
                raise InputError(f"questions of the file and of flags are both called {', '.join(twice)}")
            asked = read.questions | asked
            text = read.state if text is None else text
        if file is not None:
            text = read_state(file)
        elif text is None and questions != STDIN and not sys.stdin.isatty():
            text = read_state(STDIN) or None  # nothing was piped in
    except (InputError, QuestionSyntaxError) as error:
        raise failed(error, status=2) from None
    if text is None:
        raise failed("nothing to ask about: give a file, `-` for stdin, or --state TEXT", status=2)
    if not asked:
        raise failed("no question: give --noul, --choice, --score or --questions", status=2)
    return text, asked


def _ask_server(
    url: str,
    api_key: str | None,
    model: str | None,
    timeout_s: float,
    state: Any,
    questions: dict[str, Any],
    switches: dict[str, Any],
) -> Answered:
    from openjev_sdk import OpenJevError

    from openjev_server.cli.remote import ask_server

    try:
        return ask_server(url, state, questions, api_key=api_key, model=model, timeout_s=timeout_s, **switches)
    except OpenJevError as error:
        raise failed(error) from None


def _ask_here(state: Any, questions: dict[str, Any], **flags: Any) -> Answered:
    settings = settings_from(**flags)
    from openjev_server.bundle import ModelNotFound
    from openjev_server.calibration import CalibrationError
    from openjev_server.checkpoint import CannotLoad
    from openjev_server.cli.device import check_device
    from openjev_server.cli.loading import loading_bar
    from openjev_server.cli.local import ask_here
    from openjev_server.engine.protocol import EngineError
    from openjev_server.wire.errors import WireError

    check_device(settings.device)
    try:
        with loading_bar(settings.model, settings.model_revision) as progress:
            return ask_here(settings, state, questions, progress)
    except WireError as error:
        raise failed(f"{error.status} {json.dumps(error.detail, ensure_ascii=False)}") from None
    except (ModelNotFound, CannotLoad, CalibrationError, EngineError) as error:
        raise failed(error) from None


def _print(questions: dict[str, Any], answered: Answered, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(answered.body, ensure_ascii=False))
        return
    from rich.console import Console

    from openjev_server.cli.table import print_answers

    print_answers(Console(), questions, answered)
