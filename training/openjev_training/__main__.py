"""Stages as commands: `python -m openjev_training prepare|convert|train|report|...`."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from .architecture import NANO

TRAINING = Path(__file__).resolve().parents[1]
RESULTS = TRAINING / "results"
EMBEDDED = TRAINING.parent / "server" / "openjev_server" / "models" / "nano"
LATENCY = TRAINING.parent / "benchmarks" / "results" / "cpu.json"

app = typer.Typer(no_args_is_help=True, add_completion=False)
Folder = Annotated[Path, typer.Option(file_okay=False)]


@app.command()
def prepare(data: Folder, out: Folder) -> None:
    """Public data -> rows and texts behind the wall, and the measuring sets."""
    from .prepare import prepare as run

    typer.echo(json.dumps(run(data, out)))


@app.command()
def convert(gguf: Path, data: Folder, tokenizer: Path, out: Path) -> None:
    """SmolLM2's GGUF -> the warm start file."""
    from .convert import write_warm_start

    write_warm_start(gguf, data, tokenizer, out)


@app.command()
def train(
    prepared: Folder,
    tokenizer: Folder,
    out: Folder,
    plan: Path,
    warm: Path | None = None,
    device: str = "cuda",
    workers: int = 14,
    length: int = 65536,
) -> None:
    """Runs the phases of a plan (JSON list, see `train.Phase`)."""
    from .plan import Settings, read_plan
    from .train import train as run

    phases = read_plan(plan)
    settings = Settings(prepared, tokenizer, warm, out, device, length, workers, compiled=device == "cuda")
    run(settings, phases, NANO)


@app.command()
def upcycle(
    out: Annotated[Path, typer.Option(help="The checkpoint directory to make.")],
    prepared: Annotated[Path | None, typer.Option(help="Folder with what `prepare` wrote: rows and texts.")] = None,
    minutes: Annotated[float, typer.Option(help="Of training; 0 leaves the routers random.")] = 2.0,
    device: str = "cuda",
    workers: int = 8,
    length: int = 16384,
    seed: int = 0,
) -> None:
    """The embedded checkpoint as a mixture of 8 experts, 2 a row, trained for a while so that its routers are real."""
    from .plan import Settings
    from .upcycle import train_upcycled
    from .upcycle import upcycle as untrained

    if not minutes:
        typer.echo(f"{untrained(out, seed=seed):,} bytes")
        return
    if prepared is None:
        raise typer.BadParameter("training needs --prepared")
    settings = Settings(
        prepared,
        EMBEDDED,
        None,
        out,
        device,
        length,
        workers,
        seed=seed,
        compiled=device == "cuda",
        save_seconds=math.inf,
    )
    typer.echo(f"{train_upcycled(settings, NANO, seconds=60 * minutes, seed=seed):,} bytes")


@app.command()
def report(predictions: Path, out: Path | None = None) -> None:
    """Predictions of a phase (or of `evaluate`) -> accuracies, errors, calibration and flip rates as JSON."""
    from .metrics import summary
    from .predict import read_predictions

    text = json.dumps(_rounded(summary(read_predictions(predictions))), indent=1)
    typer.echo(text) if out is None else out.write_text(text + "\n")


@app.command()
def results(run: Folder, out: Folder = RESULTS) -> None:
    """Reports every phase of a run that has predictions, and keeps its log."""
    from .metrics import summary
    from .predict import read_predictions

    for file in sorted(run.glob("*/predictions.jsonl.xz")):
        text = json.dumps(_rounded(summary(read_predictions(file))), indent=1)
        (out / f"{file.parent.name}.json").write_text(text + "\n")
        typer.echo(f"{file.parent.name}: {out / file.parent.name}.json")
    shutil.copyfile(run / "log.jsonl", out / "log.jsonl")


@app.command()
def evaluate(checkpoint: Folder, prepared: Folder, out: Path, rows: int = 300, threads: int | None = None) -> None:
    """Measures a checkpoint directory through the server's compiler, engine and readout on the CPU."""
    from .evaluate import Served
    from .evaluate import evaluate as run
    from .predict import write_predictions
    from .prepare import load_measures

    measures = {name: members for name, members in load_measures(prepared).items() if name != "cal"}
    records, seconds = run(Served(checkpoint, threads=threads), measures, rows=rows)
    write_predictions(out, records)
    typer.echo(f"{len(records)} rows in {seconds:.0f} s")


@app.command()
def calibrate(predictions: Path, checkpoint: Folder, out: Path) -> None:
    """Fits the checkpoint's calibration on held-out predictions of its training run; writes it into the checkpoint."""
    from openjev_server.bundle import load_bundle
    from openjev_server.engine.loading import weights_hash

    from .calibrate import write_calibration
    from .predict import read_predictions

    bundle = load_bundle(checkpoint)
    report = write_calibration(
        checkpoint,
        read_predictions(predictions),
        model=bundle.id,
        template=bundle.template,
        weights_hash=weights_hash(checkpoint),
        fitted_on="held-out tasks, answered by the same training run before it saw them",
    )
    out.write_text(json.dumps(_rounded(report), indent=1) + "\n")


@app.command()
def calibrate_seed(recorded: Path, jev: Path, directory: Folder, out: Path) -> None:
    """Fits the shipped calibration of the released DiffusionGemma on the seed's recorded numbers (two fixtures)."""
    from .shipped_calibration import write_shipped

    out.write_text(json.dumps(write_shipped(recorded, jev, directory), indent=1) + "\n")


@app.command()
def baseline(embedding: Folder, prepared: Folder, out: Path, rows: int = 300) -> None:
    """Measures a sentence embedding (a BERT directory) by cosine between text and options."""
    from .baselines import Embedder, embedding_records
    from .predict import write_predictions
    from .prepare import load_measures

    measures = {name: members for name, members in load_measures(prepared).items() if name != "cal"}
    write_predictions(out, embedding_records(Embedder(embedding), measures, rows=rows))


@app.command()
def sparrow(prepared: Folder, out: Path, rows: int = 1000) -> None:
    """Measures the 2 MB model of the package `sparrow-decider`, which must be installed (it is no dependency)."""
    from .baselines import sparrow as load
    from .baselines import sparrow_records
    from .predict import write_predictions
    from .prepare import load_measures

    try:
        ask = load()
    except ModuleNotFoundError as error:
        raise typer.BadParameter("pip install --no-deps sparrow-decider==0.2.0 first") from error
    measures = {name: members for name, members in load_measures(prepared).items() if name in ("held-out", "routing")}
    write_predictions(out, sparrow_records(ask, measures, rows=rows))


@app.command()
def targets(
    results: Folder = RESULTS,
    prepared: Annotated[Path | None, typer.Option(help="What `prepare` wrote; without it nothing is measured.")] = None,
    held_out: Annotated[Path | None, typer.Option(help="A checkpoint that saw no held-out task.")] = None,
    shipped: Annotated[Path | None, typer.Option(help="The checkpoint that ships; the embedded one.")] = None,
    rows: int = 60,
    threads: int | None = None,
    out: Path | None = None,
    notes: Annotated[Path | None, typer.Option(help="A Markdown file with targets:begin and targets:end.")] = None,
) -> None:
    """Prints the targets table, from the checkpoints at hand where their data are, else from the committed results."""
    from .marks import fill
    from .targets import as_markdown, read_results, target_lines
    from .targets_run import remeasured

    embedded = shipped or EMBEDDED
    found = read_results(results, latency=LATENCY, weights=embedded / "model.q4.safetensors")
    if prepared is not None:
        found = remeasured(found, prepared, held_out, embedded, rows=rows, threads=threads)
    if prepared is None:
        typer.echo("Nothing is measured now (no --prepared): committed results of the training run.\n")
    elif held_out is None:
        typer.echo("No held-out checkpoint given: held-out figures are the committed results of the training run.\n")
    text = as_markdown(target_lines(found))
    typer.echo(text)
    if out is not None:
        out.write_text(text + "\n")
    if notes is not None:
        notes.write_text(fill(notes.read_text(), "targets", text))


@app.command()
def plots(
    results: Folder = RESULTS,
    predictions: Annotated[Path | None, typer.Option(help="Of the phase without held-out tasks, for new bins.")] = None,
) -> None:
    """Draws losses and accuracies by tokens, and reliability with and without calibration, into `results`.

    The log and the accuracies are the folder's own. So are the bins of reliability, unless predictions are given.
    """
    from .plots import draw_reliability, draw_training
    from .predict import read_predictions
    from .reliability import read_bins, reliability, write_bins

    bins = results / "reliability.json"
    if predictions is not None:
        write_bins(bins, reliability(read_predictions(predictions)))
    draw_training(results, results / "training.svg")
    draw_reliability(read_bins(bins), results / "reliability.svg")


@app.command()
def everyday(
    checkpoint: Folder = EMBEDDED, out: Path = RESULTS / "everyday.json", card: Path = EMBEDDED / "MODEL_CARD.md"
) -> None:
    """Answers the everyday cases through the server's code; keeps the answers and writes them into the card."""
    from .everyday_run import answer_cases, as_markdown
    from .marks import fill

    kept = answer_cases(checkpoint)
    text = fill(card.read_text(encoding="utf-8"), "everyday", as_markdown(kept))
    out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    card.write_text(text, encoding="utf-8")


@app.command()
def second_step(predictions: Path, out: Path = RESULTS / "second-step.json", share: float = 0.25) -> None:
    """One step against two on the least sure held-out rows of each task."""
    from .predict import read_predictions
    from .second_step import unsure

    out.write_text(json.dumps(_rounded(unsure(read_predictions(predictions), share)), indent=1) + "\n")


@app.command()
def edges(
    checkpoint: Folder = EMBEDDED,
    out: Path = RESULTS / "edges.json",
    lookups: int = 20,
    long_cases: int = 3,
    long_tokens: int = 8000,
) -> None:
    """Measures lookups among up to 255 options, and empty, irrelevant and very long states."""
    from .edges import edges as run

    found = run(checkpoint, lookups=lookups, long_cases=long_cases, long_tokens=long_tokens)
    out.write_text(json.dumps(_rounded(found), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    app()
