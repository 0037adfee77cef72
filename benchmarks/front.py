"""Host time of a request beside the model: `python -m benchmarks.front`.

A server whose model computes nothing (`benchmarks.silent_server`: front and engine process are the product's) is asked
what `latency_gpu` and `scaling` ask: states and questions that no earlier request had, one request at a time. `front`
is what the client sees less what the engine says it took; `engine` is the engine's own work on the host. Then the
stages of the same requests one by one in this process, in microseconds. Medians. Warm runs ask the same questions about
a new state.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from openjev_server.bundle import load_bundle
from openjev_server.calibration import IDENTITY
from openjev_server.canvas.compile import Compiler
from openjev_server.canvas.readout import read_out
from openjev_server.engine.protocol import EngineResult
from openjev_server.fleet.codec import decode_request, decode_result, encode_request, encode_result
from openjev_server.wire.answer import render_answer, render_response
from openjev_server.wire.body import decode_body
from openjev_server.wire.json import to_json_bytes
from openjev_server.wire.parse import parse_request

from benchmarks.latency_gpu import fresh
from benchmarks.load import Connection
from benchmarks.results import DIRECTORY, machine, write_json
from benchmarks.server import running_server
from benchmarks.service import timed
from benchmarks.text import Text, build_tokenizer

__all__ = ["main", "measure_http", "measure_stages"]

SHAPES = ((500, 1, 40), (500, 3, 40), (500, 10, 40), (2000, 100, 56), (2000, 400, 56), (32_000, 1, 40))
"""Tokens of the state, questions, tokens of a question."""
TINY = ((60, 1, 40), (60, 5, 40))
SETTINGS = {"ENGINES": "1", "DEVICE": "cpu", "MAX_TOTAL_TOKENS": "65536", "MAX_PROMPT_TOKENS": "32768"}
"""Limits of a GPU."""


def bodies(state: int, questions: int, suffix: int, *, warm: bool) -> Iterator[bytes]:
    """Requests with new states; with the same questions where `warm`."""
    text = Text(seed=state + questions)
    if not warm:
        return fresh(text, state=state, questions=questions, suffix=suffix)
    body = text.body(state="@@@@", questions=questions, suffix=suffix)
    return (body.replace(b"@@@@", text.state(state).encode()) for _ in itertools.count())


def measure_http(url: str, repeats: int, steps: int, shapes: Sequence[tuple[int, int, int]]) -> list[Any]:
    """One row per shape and kind of run, milliseconds."""
    rows = []
    connection = Connection(url, OpenJev_Steps=str(steps))
    for (state, questions, suffix), warm in itertools.product(shapes, (False, True)):
        count = max(3, repeats // (4 if questions > 10 else 1))
        figures = timed(connection, bodies(state, questions, suffix, warm=warm), count, warm_up=2)
        front = round(figures["p50_ms"] - figures["engine_p50_ms"], 2)
        rows.append({"state": state, "questions": questions, "warm": warm, "front_ms": front, **figures})
    connection.close()
    return rows


def measure_stages(directory: Path, repeats: int, shapes: Sequence[tuple[int, int, int]]) -> list[Any]:
    """One row per shape, cold, microseconds per stage."""
    from benchmarks.silent_server import silent_engine

    bundle = load_bundle(directory)
    compiler = Compiler(bundle.tokenizer, bundle.template)
    engine = silent_engine({"settings": {"token_budget": 8192}}, print)
    rows = []
    for state, questions, suffix in shapes:
        made = bodies(state, questions, suffix, warm=False)
        runs = [
            _stages(next(made), compiler, engine) for _ in range(2 + max(3, repeats // (4 if questions > 10 else 1)))
        ]
        medians = {name: round(1e6 * statistics.median(run[name] for run in runs[2:]), 1) for name in runs[0]}
        rows.append({"state": state, "questions": questions, **medians, "sum": round(sum(medians.values()), 1)})
    return rows


def _stages(body: bytes, compiler: Compiler, engine: Any) -> dict[str, float]:
    """Seconds of every stage of one request."""
    clock = _Clock()
    value = clock(
        "decode",
        lambda: decode_body(body, content_encoding=None, content_type="application/json", limit=1 << 25, max_depth=200),
    )
    parsed = clock("parse", lambda: parse_request(value, unknown_fields="reject"))
    compiled = clock("compile", lambda: compiler.compile(parsed.state, parsed.questions))
    sent = clock("encode request", lambda: encode_request(compiled.request))
    request = clock("decode request", lambda: decode_request(memoryview(sent)))
    (result,) = clock("engine", lambda: engine.run([request]))
    assert isinstance(result, EngineResult)
    answered = clock("encode result", lambda: encode_result(result))
    came = clock("decode result", lambda: decode_result(memoryview(answered)))
    read = clock("read out", lambda: read_out(compiled, came))
    pairs = list(zip(parsed.questions, read, strict=True))
    answers = clock(
        "render", lambda: {q.id: render_answer(q, IDENTITY.apply(q, p.tolist()), decimals=2) for q, p in pairs}
    )
    clock("to json", lambda: to_json_bytes(render_response("m", answers, compiled.usage)))
    return clock.seconds


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, work: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        value = work()
        self.seconds[name] = time.perf_counter() - began
        return value


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repeats",
        type=int,
        default=60,
        help="requests a row (default %(default)s; a quarter of it above 10 questions)",
    )
    parser.add_argument("--tiny", action="store_true", help="small requests, three of each")
    parser.add_argument("--steps", type=int, default=1, help="denoising steps over HTTP (default %(default)s)")
    parser.add_argument("--json", type=Path, default=DIRECTORY / "front.json", help="default %(default)s")
    chosen = parser.parse_args(arguments)
    shapes, repeats = (TINY, 3) if chosen.tiny else (SHAPES, chosen.repeats)
    from benchmarks.released import configuration, write_stub

    with tempfile.TemporaryDirectory(prefix="openjev-front-") as scratch:
        directory = Path(scratch)
        write_stub(directory, configuration())
        build_tokenizer().save(str(directory / "tokenizer.json"))
        stages = measure_stages(directory, repeats, shapes)
        print_rows(stages)
        settings = {f"OPENJEV_{name}": value for name, value in SETTINGS.items()}
        command = [sys.executable, "-m", "benchmarks.silent_server", scratch]
        with running_server(command=command, settings=settings) as server:
            http = measure_http(server.url, repeats, chosen.steps, shapes)
    print_rows(http)
    write_json(chosen.json, {"machine": machine(), "steps": chosen.steps, "stages_us": stages, "http": http})
    return 0


def print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """A table, one line per figure."""
    for name in rows[0]:
        print(f"{name:>16}", *(f"{row[name]!s:>10}" for row in rows))
    print(flush=True)


if __name__ == "__main__":
    sys.exit(main())
