"""Compiled requests and what is read from them, to the byte, as they were before compilation was done in batches."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from canvas_tokenizers import GEMMA_CHAT
from openjev_server.canvas import CompiledRequest, Compiler, Layout, TextTokenizer, read_out
from openjev_server.canvas.templates import template_for
from openjev_server.engine.protocol import BlockResult, EngineResult
from openjev_server.fleet.codec import encode_request
from openjev_server.questions import Choice, Noul, Option, Question, Score

STATES = ("", "I was charged twice.", {"order": [1, {"café": "<o3> 😀"}]}, "The parcel came late. " * 400)
ASKED: tuple[Question, ...] = (
    Noul("a", "Is it a complaint?"),
    Choice("b", "Which team?", (Option("billing", "Payments"), Option("bill"), Option("sales", {"x": 1}))),
    Noul("c", "Is it a complaint?"),
    Score("d", "How angry?", ("calm", "cross", "furious")),
    Choice("e", "Which team?", (Option("only"),)),
    Noul("f", None, "they ask", "they do not <question>"),
    Noul("g", ["nested", None]),
    Score("h", "Again?", ("no", "yes")),
    Choice("i", None, tuple(Option(f"option {n}" * (1 + n % 3)) for n in range(60))),
)
PINNED = {
    ("nano-label-v1", "isolated"): "2fb7c6a527fda4f0",
    ("nano-label-v1", "grouped"): "eecaa95b38f207cc",
    ("nano-literal-1", "isolated"): "868b6dc1d2f07d3e",
    ("nano-literal-1", "grouped"): "49de3f295344906d",
    ("openjev-literal-1", "isolated"): "cd5b6a358868947f",
    ("openjev-literal-1", "grouped"): "7c4958c8bf7bdc6d",
    ("seed-1", "isolated"): "b7b139e660410d76",
    ("seed-1", "grouped"): "fdf881025189d026",
}


def digest(compiled: CompiledRequest) -> str:
    """Of everything that an engine is told, of where answers are read, and of the answers to made up logits."""
    rng = np.random.default_rng(1)
    results = []
    for block in compiled.request.blocks:
        shape = compiled.request.steps, len(block.canvases)
        logits = rng.normal(-3, 2, (*shape, len(block.candidates))).astype(np.float32)
        results.append(BlockResult(logits, np.zeros((*shape, len(block.slots)), np.float32)))
    seen = hashlib.sha256(encode_request(compiled.request))
    seen.update(repr((compiled.usage, compiled.longest_prompt)).encode())
    for readout in compiled.readouts:
        seen.update(repr((readout.block, readout.slots, readout.candidates, readout.trie.values)).encode())
    for answer in read_out(compiled, EngineResult(tuple(results))):
        # Of a float64 all that any machine's exp and log agree about.
        seen.update(repr([round(p, 9) + 0.0 for p in answer.tolist()]).encode())
    return seen.hexdigest()[:16]


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("name", ["nano-label-v1", "nano-literal-1", "openjev-literal-1", "seed-1"])
def test_requests_compile_as_ever(nano: TextTokenizer, gemma: TextTokenizer, name: str, layout: Layout) -> None:
    embedded = name.startswith("nano")
    tokenizer = nano if embedded else gemma
    template = template_for(tokenizer, name, chat=None if embedded else GEMMA_CHAT)
    compiler = Compiler(tokenizer, template)
    seen = hashlib.sha256()
    for state in STATES:
        for steps, replicas in ((1, 1), (3, 2)):
            for questions in (ASKED[:1], ASKED, ASKED[::-1]):
                compiled = compiler.compile(state, questions, layout=layout, steps=steps, replicas=replicas)
                seen.update(digest(compiled).encode())
    assert seen.hexdigest()[:16] == PINNED[name, layout.value]
