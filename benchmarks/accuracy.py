"""The embedded checkpoint's accuracy: `python benchmarks/accuracy.py test.jsonl.xz --url http://127.0.0.1:8000`.

Asks the first rows of every task (`task, type, state, instructions, criteria, gold`, one JSON object a line, xz) and
compares with the majority class: the most frequent right answer of the same rows. With --url a running server is asked
through the SDK, one row a request; with --in-process the engine itself, many rows a call. The result is written as
JSON; --card puts it as a table into a model card, and --from takes an earlier result in place of measuring. Only top
answers count here: how honest the probabilities are is measured where the calibration is fitted (`training`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

__all__ = ["Result", "Row", "TaskResult", "fill_card", "first_rows", "summarise"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "accuracy.json"
ROWS_PER_TASK = 300
BATCH = 64
CONCURRENCY = 4
BEGIN, END = "<!-- accuracy:begin -->", "<!-- accuracy:end -->"


@dataclass(frozen=True, slots=True)
class Row:
    task: str
    type: str
    state: Any
    question: Mapping[str, Any]
    """In wire form."""
    gold: Any
    """An option, true or false, or a level."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    task: str
    type: str
    rows: int
    accuracy: float
    majority: float
    """Accuracy of always giving the most frequent right answer of these rows."""
    refused: int
    """Rows that got no answer; they count as wrong."""


@dataclass(frozen=True, slots=True)
class Result:
    fingerprint: str
    through: str
    data_sha256: str
    rows_per_task: int
    tasks: tuple[TaskResult, ...]


Ask = Callable[[Sequence[Row]], tuple[str, list[Any]]]
"""Rows to the fingerprint of what answered, and each one's likeliest answer, of the gold's kind; None when refused."""


def first_rows(path: Path, limit: int) -> list[Row]:
    """The first `limit` rows of every task, in file order."""
    taken: Counter[str] = Counter()
    rows = []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            raw = json.loads(line)
            if taken[raw["task"]] == limit:
                continue
            taken[raw["task"]] += 1
            question = {"type": raw["type"], "instructions": raw["instructions"], "criteria": raw["criteria"]}
            rows.append(Row(raw["task"], raw["type"], raw["state"], question, raw["gold"]))
    return rows


def summarise(rows: Sequence[Row], answers: Sequence[Any]) -> tuple[TaskResult, ...]:
    """One result per task, sorted by name."""
    pairs = list(zip(rows, answers, strict=True))
    results = []
    for task in sorted({row.task for row in rows}):
        mine = [(row, answer) for row, answer in pairs if row.task == task]
        results.append(
            TaskResult(
                task=task,
                type=mine[0][0].type,
                rows=len(mine),
                accuracy=sum(answer == row.gold for row, answer in mine) / len(mine),
                majority=Counter(row.gold for row, _ in mine).most_common(1)[0][1] / len(mine),
                refused=sum(answer is None for _, answer in mine),
            )
        )
    return tuple(results)


def means(tasks: Sequence[TaskResult]) -> Iterator[tuple[str, int, float, float]]:
    """Type, tasks, and the means over its tasks of accuracy and majority; all tasks last."""
    groups = [(kind, [t for t in tasks if t.type == kind]) for kind in ("choice", "noul", "score")]
    for name, group in [*groups, ("all", list(tasks))]:
        if group:
            accuracy, majority = (sum(column) for column in ((t.accuracy for t in group), (t.majority for t in group)))
            yield name, len(group), accuracy / len(group), majority / len(group)


def fill_card(card: str, result: Result) -> str:
    """The card with the table between its marks. Raises ValueError when it has no marks."""
    before, begin, rest = card.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the card has no {BEGIN} and {END}")
    lines = [
        f"`{result.fingerprint}`, {result.through}, the first {result.rows_per_task} rows of each task at most.",
        "",
        "| task | type | rows | accuracy | majority class |",
        "|---|---|---:|---:|---:|",
    ]
    lines += [f"| {t.task} | {t.type} | {t.rows} | {t.accuracy:.3f} | {t.majority:.3f} |" for t in result.tasks]
    lines += [
        f"| **mean of {count} tasks** | {kind} | | **{accuracy:.3f}** | {majority:.3f} |"
        for kind, count, accuracy, majority in means(result.tasks)
    ]
    if refused := sum(task.refused for task in result.tasks):
        lines += ["", f"{refused} rows were refused and count as wrong."]
    return "\n".join([before + BEGIN, *lines, END + after])


def ask_server(url: str, api_key: str | None, concurrency: int, rows: Sequence[Row]) -> tuple[str, list[Any]]:
    """One request per row, several at a time."""
    from openjev_sdk import BadRequestError, Client, Options

    with Client(url, api_key, timeout=120) as client:

        def ask(row: Row) -> tuple[str, Any]:
            try:
                decision = client.decide(row.state, {"q": row.question}, options=Options(decimals=6))
            except BadRequestError as error:
                print(f"{row.task}: {error}", file=sys.stderr)
                return "", None
            return decision.fingerprint or decision.model, _from_wire(decision.raw["answers"]["q"])

        with ThreadPoolExecutor(concurrency) as pool:
            done = list(pool.map(ask, rows))
    return next((name for name, _ in done if name), ""), [answer for _, answer in done]


def _from_wire(answer: Mapping[str, Any]) -> Any:
    match answer["type"]:
        case "noul":
            return answer["noul"] >= 0.5
        case "choice":
            return answer["choice"]
        case _:
            return int(max(answer["probabilities"], key=answer["probabilities"].__getitem__))


def in_process(model: str, device: str, dtype: str, steps: int, token_budget: int) -> Ask:
    """Loads the checkpoint; every call of the result is one call of the engine. Answers as the server's, unrounded."""
    from openjev_server.bundle import load_bundle, resolve_model
    from openjev_server.canvas.compile import Compiler, Layout
    from openjev_server.canvas.readout import read_out
    from openjev_server.engine.loading import load_engine
    from openjev_server.engine.protocol import EngineResult
    from openjev_server.wire.answer import render_answer
    from openjev_server.wire.parse import parse_request

    directory = resolve_model(model)
    bundle = load_bundle(directory)
    engine = load_engine(directory, device=device, dtype=dtype, token_budget=token_budget)
    compiler = Compiler(bundle.tokenizer, bundle.template)
    calibration = bundle.calibrations(engine.info).choose(Layout.ISOLATED, steps)
    fingerprint = (
        f"{bundle.id}@{engine.info.weights_hash}/{bundle.template.id}/{Layout.ISOLATED}/{steps}/"
        f"{engine.info.dtype}/{calibration.hash}"
    )

    def ask(rows: Sequence[Row]) -> tuple[str, list[Any]]:
        requests = [
            parse_request(
                {"model": bundle.id, "state": row.state, "questions": {"q": dict(row.question)}},
                unknown_fields="reject",
            )
            for row in rows
        ]
        compiled = [
            compiler.compile(r.state, r.questions, layout=Layout.ISOLATED, steps=steps, replicas=1) for r in requests
        ]
        answers = []
        for request, one, result in zip(requests, compiled, engine.run([one.request for one in compiled]), strict=True):
            if not isinstance(result, EngineResult):
                raise result
            (question,), (probabilities,) = request.questions, read_out(one, result)
            calibrated = calibration.apply(question, probabilities.tolist())
            answers.append(_from_wire(render_answer(question, calibrated, decimals=6)))
        return fingerprint, answers

    return ask


def measure(rows: Sequence[Row], ask: Ask, batch: int, console: Console) -> tuple[str, list[Any]]:
    """All answers, and the fingerprint of what gave them; progress on stderr."""
    fingerprint, answers = "", []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("Asking", total=len(rows))
        for start in range(0, len(rows), batch):
            name, some = ask(rows[start : start + batch])
            fingerprint = fingerprint or name
            answers += some
            progress.advance(task, len(some))
    return fingerprint, answers


def show(result: Result, console: Console) -> None:
    table = Table("task", "type", title=f"{result.fingerprint} ({result.through})", box=None)
    for column in ("rows", "accuracy", "majority", "refused"):
        table.add_column(column, justify="right")
    for t in result.tasks:
        numbers = (f"{t.accuracy:.3f}", f"{t.majority:.3f}")
        table.add_row(t.task, t.type, str(t.rows), *numbers, str(t.refused) if t.refused else "")
    table.add_section()
    for kind, count, *columns in means(result.tasks):
        table.add_row(f"mean of {count} tasks", kind, "", *(f"{mean:.3f}" for mean in columns), "", style="bold")
    console.print(table)


def read_result(path: Path) -> Result:
    raw = json.loads(path.read_text(encoding="utf-8"))
    return Result(**{**raw, "tasks": tuple(TaskResult(**task) for task in raw["tasks"])})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="test.jsonl.xz")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="ask this server")
    where.add_argument("--in-process", action="store_true", help="ask the engine here")
    where.add_argument("--from", dest="earlier", type=Path, help="an earlier result, in place of measuring")
    parser.add_argument("--limit", type=int, default=ROWS_PER_TASK, help="rows per task (default %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the result as JSON (default %(default)s)")
    parser.add_argument("--card", type=Path, help="model card whose table is replaced")
    parser.add_argument("--api-key", help="of the server")
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY, help="requests at a time, with --url")
    parser.add_argument("--model", default="nano", help="with --in-process (default %(default)s)")
    parser.add_argument("--device", default="auto", help="with --in-process")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16"), help="with --in-process")
    parser.add_argument("--steps", type=int, default=2, help="with --in-process (default %(default)s)")
    parser.add_argument("--batch", type=int, default=BATCH, help="rows a call of the engine (default %(default)s)")
    parser.add_argument("--token-budget", type=int, default=16_384, help="tokens a pass, with --in-process")
    chosen = parser.parse_args()
    if chosen.data is None and chosen.earlier is None:
        parser.error("give the data file, or --from")
    return chosen


def main() -> int:
    chosen, console = arguments(), Console(stderr=True)
    if chosen.earlier is not None:
        result = read_result(chosen.earlier)
    else:
        rows = first_rows(chosen.data, chosen.limit)
        if chosen.in_process:
            ask = in_process(chosen.model, chosen.device, chosen.dtype, chosen.steps, chosen.token_budget)
            through, batch = "in process, many rows a call of the engine", chosen.batch
        else:
            ask = partial(ask_server, chosen.url, chosen.api_key, chosen.concurrency)
            through, batch = "over HTTP, one row a request", 16 * chosen.concurrency
        fingerprint, answers = measure(rows, ask, batch, console)
        digest = hashlib.sha256(chosen.data.read_bytes()).hexdigest()
        result = Result(fingerprint, through, digest, chosen.limit, summarise(rows, answers))
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(asdict(result), indent=1) + "\n", encoding="utf-8")
    show(result, Console())
    if chosen.card is not None:
        chosen.card.write_text(fill_card(chosen.card.read_text(encoding="utf-8"), result), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
