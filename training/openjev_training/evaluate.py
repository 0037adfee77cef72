"""The same measures through the server: its compiler, its engine, its readout, on a checkpoint directory."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from openjev_server.canvas.compile import Compiler
from openjev_server.canvas.readout import read_out
from openjev_server.canvas.templates import template_for
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.engine.loading import load_engine
from openjev_server.engine.protocol import EngineError, EngineInfo
from openjev_server.questions import Question, Text

from .examples import from_row
from .predict import Record
from .rows import Row, sample_rows

__all__ = ["Served", "evaluate"]


class Served:
    """A checkpoint behind the server's own code, without HTTP."""

    def __init__(self, checkpoint: Path, *, dtype: str = "auto", threads: int | None = None) -> None:
        self._engine = load_engine(checkpoint, device="cpu", dtype=dtype, threads=threads)
        tokenizer = TextTokenizer.from_directory(checkpoint)
        self._compiler = Compiler(tokenizer, template_for(tokenizer))

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    def ask(self, asked: Sequence[tuple[Text, Sequence[Question]]], *, steps: int) -> list[list[list[float]]]:
        """Probabilities per request and question after `steps` steps. Raises EngineError."""
        compiled = [self._compiler.compile(state, questions, steps=steps) for state, questions in asked]
        out = []
        for one, result in zip(compiled, self._engine.run([c.request for c in compiled]), strict=True):
            if isinstance(result, EngineError):
                raise result
            out.append([[float(x) for x in p] for p in read_out(one, result)])
        return out


def evaluate(
    served: Served, measures: Mapping[str, Sequence[Row]], *, rows: int, seed: int = 5, steps: Sequence[int] = (1, 2)
) -> tuple[list[Record], float]:
    """At most `rows` rows of every task, and the seconds that the answers took."""
    records: list[Record] = []
    begin = time.perf_counter()
    for measure, members in measures.items():
        tasks: dict[str, list[Row]] = defaultdict(list)
        for row in members:
            tasks[row.task].append(row)
        for task, every in tasks.items():
            chosen = sample_rows(every, rows, seed)
            asked = [(row.state, (from_row(row).question,)) for row in chosen]
            found = [served.ask(asked, steps=count) for count in steps]
            for number, row in enumerate(chosen):
                record = Record(measure, "plain", task, row.kind, number, row.gold, ())
                records.append(replace(record, steps=tuple(tuple(f[number][0]) for f in found)))
    return records, time.perf_counter() - begin
