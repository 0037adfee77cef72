"""Judgments a second under load: `python -m benchmarks.throughput`.

The seed's shape: prompts of 249 tokens with their six yes/no questions, which share a canvas of about 64 tokens
(`OpenJev-Layout: grouped`); every request has a state of its own, all ask the same questions. 1, 8, 32 and 64 clients
over HTTP, 1 and 2 denoising steps, and 64 clients in the isolated layout, whose canvases take 32 tokens a question.
The seed: 182 judgments a second, out of memory at 32 prompts. Afterwards the same load on a server whose engine
computes nothing says what clients and front take.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from openjev_server.canvas.compile import Layout
from openjev_server.questions import Noul

from benchmarks.load import load, percentile
from benchmarks.server import RunningServer, running_server
from benchmarks.service import Sizes, command, memory_peak
from benchmarks.text import Text

__all__ = ["bodies", "measure"]

PROMPT_TOKENS = 249
QUESTIONS = 6
SEED_JUDGMENTS_PER_S = 182
FAKE_SERVER = """
import openjev_server.engine.loading as loading
from openjev_server.engine.fake import FakeEngine
from openjev_server.serving import serve
from openjev_server.settings import Settings
loading.load_engine = lambda *_, **__: FakeEngine()
serve(Settings())
"""


@dataclass(frozen=True, slots=True)
class _Shape:
    state: int
    canvas: int


def _questions() -> list[str]:
    return [Text(seed=number).words(9) for number in range(QUESTIONS)]


def _shape() -> _Shape:
    """How long states are so that prompts have 249 tokens in the grouped layout, and how wide the canvas is then."""
    text = Text()
    asked = [Noul(f"q{number}", words) for number, words in enumerate(_questions())]
    compiled = text.compiler.compile(text.state(100), asked, layout=Layout.GROUPED)
    return _Shape(100 + PROMPT_TOKENS - compiled.usage.input_tokens, compiled.usage.output_tokens)


def bodies(state_tokens: int, client: int) -> Iterator[bytes]:
    """Endless requests of one client, whose states differ from their first word on."""
    text = Text(seed=1000 + client)
    asked = {f"q{number}": {"type": "noul", "instructions": words} for number, words in enumerate(_questions())}
    rest = text.state(state_tokens - 4)
    body = json.dumps({"state": "@@@@" + rest, "model": "jev-latest", "questions": asked}).encode()
    before, _, after = body.partition(b"@@@@")
    while True:
        yield before + text.words(4).encode() + after


def measure(server: RunningServer, sizes: Sizes) -> dict[str, Any]:
    shape = _shape()
    make = partial(bodies, shape.state)
    seconds, warm_up_s = sizes.seconds(8.0), sizes.seconds(3.0)
    plan = [(clients, steps, "grouped") for steps in (1, 2) for clients in (1, 8, 32, 64)]
    plan += [(64, steps, "isolated") for steps in (1, 2)]
    if sizes.tiny:
        plan = [(8, 1, "grouped"), (8, 2, "isolated")]
    rows = []
    for clients, steps, layout in plan:
        with memory_peak(server) as peak:
            done = load(
                server.url,
                make,
                clients=clients,
                seconds=seconds,
                warm_up_s=warm_up_s,
                OpenJev_Steps=str(steps),
                OpenJev_Layout=layout,
            )
        rows.append({"clients": clients, "steps": steps, "layout": layout, **_figures(done), **peak})
        print(rows[-1], flush=True)
    return {
        "prompt_tokens": PROMPT_TOKENS,
        "canvas_tokens_grouped": shape.canvas,
        "seed_judgments_per_s": SEED_JUDGMENTS_PER_S,
        "rows": rows,
        "without_a_model": _without_a_model(make, plan[-1][0], seconds),
    }


def _figures(done: Any) -> dict[str, Any]:
    """Judgments a second, what clients saw, and every failure by its text."""
    kinds = {failure: done.failures.count(failure) for failure in set(done.failures)}
    figures = {"judgments_per_s": round(QUESTIONS * len(done.latencies) / done.seconds, 1)}
    if done.latencies:
        figures |= {
            "p50_ms": round(1000 * percentile(done.latencies, 0.5), 1),
            "p95_ms": round(1000 * percentile(done.latencies, 0.95), 1),
        }
    return {**figures, "failures": len(done.failures), "failed_with": kinds, "client_us": done.client_us}


def _without_a_model(make: Any, clients: int, seconds: float) -> dict[str, Any]:
    settings = {"OPENJEV_ENGINES": "0"}
    with running_server(command=[sys.executable, "-c", FAKE_SERVER], settings=settings) as server:
        done = load(server.url, make, clients=clients, seconds=seconds, warm_up_s=1.0, OpenJev_Layout="grouped")
    return {"clients": clients, **_figures(done)}


def main(arguments: Sequence[str] | None = None) -> int:
    return command("throughput", __doc__, measure, arguments)


if __name__ == "__main__":
    sys.exit(main())
