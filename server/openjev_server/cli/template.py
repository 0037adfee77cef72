"""`openjev template`: which templates there are, and what one makes of questions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openjev_server.cli.failure import failed
from openjev_server.cli.flags import Layout, Model, Revision, Steps, settings_from

if TYPE_CHECKING:
    from openjev_server.canvas.drawing import Drawing, Piece
    from openjev_server.questions import Question

__all__ = ["app"]

app = typer.Typer()
template = typer.Typer(help="Show what a model is shown.", no_args_is_help=True)
app.add_typer(template, name="template")

PLACEHOLDER = "(the state)"
STYLES = {"text": "", "control": "cyan", "slot": "bold green"}


@template.command("list")
def list_templates(*, model: Model = None, revision: Revision = None) -> None:
    """List the shipped templates, and which of them fit the checkpoint's tokenizer."""
    settings = settings_from(model=model, model_revision=revision)
    from rich.console import Console
    from rich.table import Table

    from openjev_server.bundle import ModelNotFound, load_bundle, resolve_model
    from openjev_server.canvas.templates import TEMPLATES

    try:
        directory = resolve_model(settings.model, revision=settings.model_revision)
        chosen = load_bundle(directory).template.id
    except ModelNotFound as error:
        raise failed(error) from None
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("template", "hash", "values", "between steps", directory.name):
        table.add_column(heading)
    for name, shipped in TEMPLATES.items():
        try:
            fitting = load_bundle(directory, template=name).template
            verdict = "default" if name == chosen else "fits"
        except ModelNotFound as error:
            fitting, verdict = shipped, f"lacks {str(error).partition('lacks: ')[2]}"
        slots = "kept" if fitting.entropy_bound is None else "redrawn"
        table.add_row(name, fitting.hash, fitting.spelling, f"{fitting.self_conditioning}, {slots}", verdict)
    Console().print(table)


@template.command()
def show(
    *,
    name: Annotated[
        str, typer.Argument(help="Id of a template (the version may be left out), `auto`, or a template file.")
    ],
    questions: Annotated[Path, typer.Option(help="JSON: questions by id, or a whole request.")],
    state: Annotated[str | None, typer.Option(help="File of the state (.json is parsed); - reads stdin.")] = None,
    model: Model = None,
    revision: Revision = None,
    layout: Layout = None,
    steps: Steps = None,
) -> None:
    """Print the prompt and the canvases that questions become.

    Control tokens stand in « », slots with their candidate tokens in [[ ]]. Such marks in a text have a backslash.
    """
    settings = settings_from(model=model, model_revision=revision, layout=layout, steps=steps, template=name)
    from openjev_server.bundle import ModelNotFound, load_bundle, resolve_model
    from openjev_server.canvas.compile import CanvasTooWide, Compiler
    from openjev_server.canvas.compile import Layout as CanvasLayout
    from openjev_server.canvas.drawing import drawn
    from openjev_server.canvas.prompt import PromptError
    from openjev_server.cli.inputs import InputError, read_questions, read_state
    from openjev_server.wire.errors import WireError
    from openjev_server.wire.parse import parse_request

    try:
        bundle = load_bundle(
            resolve_model(settings.model, revision=settings.model_revision), template=settings.template
        )
        file = read_questions(str(questions))
        shown = read_state(state) if state is not None else PLACEHOLDER if file.state is None else file.state
        request = parse_request(
            {"model": bundle.id, "state": shown, "questions": file.questions}, unknown_fields="reject"
        )
        compiler = Compiler(bundle.tokenizer, bundle.template)
        compiled = compiler.compile(
            request.state, request.questions, layout=CanvasLayout(settings.layout), steps=settings.steps
        )
    except (ModelNotFound, InputError, WireError, PromptError, CanvasTooWide) as error:
        raise failed(error) from None
    asked = [len([r for r in compiled.readouts if r.block == block]) for block in range(len(compiled.request.blocks))]
    _print(
        f"{bundle.template.id} ({bundle.template.hash}), {settings.layout}, {settings.steps} steps",
        _named(request.questions, asked),
        drawn(compiled, compiler.tokenizer),
    )


def _named(questions: tuple[Question, ...], asked: list[int]) -> list[str]:
    """Per canvas, the ids of the questions on it."""
    ids = iter(question.id for question in questions)
    return [", ".join(next(ids) for _ in range(count)) for count in asked]


def _print(title: str, names: list[str], drawing: Drawing) -> None:
    from rich.console import Console
    from rich.text import Text

    from openjev_server.canvas.drawing import LEGEND

    console = Console(highlight=False)

    def show(*parts: Any) -> None:
        console.print(Text.assemble(*parts), soft_wrap=True)

    def draw(pieces: Sequence[Piece]) -> None:
        show(*((piece.text, STYLES[piece.kind]) for piece in pieces))

    show((title, "bold"))
    show((LEGEND, "dim"))
    show((f"\n--- shared by all questions: {drawing.state_tokens} tokens", "dim"))
    draw(drawing.state)
    for name, block in zip(names, drawing.blocks, strict=True):
        show((f"\n--- {name}: {block.suffix_tokens} tokens", "dim"))
        draw(block.suffix)
        show((f"\n--- canvas of {name}: {block.canvas_tokens} tokens, {block.slots} slots", "dim"))
        draw(block.canvas)
