"""Engine requests of given shapes over random tokens: no text, no tokenizer.

Random tokens cost what text costs: nothing in the model depends on what a token means. Every draw is new, so that no
cache can hold a state before its first request.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from openjev_server.engine.protocol import CanvasBlock, EngineRequest, Int32

from benchmarks.shapes import TEMPLATE_TOKENS, Shapes

__all__ = ["FIRST_TOKEN", "grouped_requests", "isolated_requests", "question_block", "request", "tokens"]

FIRST_TOKEN = 200
"""Below lie control tokens."""
GROUPED_WIDTH = 256
FIELD_WIDTH = 14
"""18 fields of 14 tokens and two braces fill 254 of 256 canvas tokens."""


def tokens(rng: np.random.Generator, count: int, vocab: int) -> Int32:
    return rng.integers(FIRST_TOKEN, vocab - 1, count).astype(np.int32)


def question_block(
    rng: np.random.Generator, vocab: int, *, suffix: int, width: int, options: Sequence[int]
) -> CanvasBlock:
    """A canvas of `width` with one slot per entry of `options`, each with that many candidate tokens."""
    canvas = tokens(rng, width, vocab)[None]
    first = max(0, min(4, width - len(options)))
    stride = max(1, min(FIELD_WIDTH, (width - first) // len(options)))
    slots = first + stride * np.arange(len(options), dtype=np.int32)
    candidates = [np.sort(FIRST_TOKEN + rng.choice(vocab - FIRST_TOKEN - 1, k, replace=False)) for k in options]
    return CanvasBlock(
        suffix=tokens(rng, suffix, vocab),
        canvases=canvas,
        slots=slots.astype(np.int32),
        candidates=np.concatenate(candidates).astype(np.int32),
        offsets=np.cumsum([0, *options]).astype(np.int32),
    )


def request(
    rng: np.random.Generator,
    vocab: int,
    *,
    state: int | Int32,
    questions: int,
    suffix: int = 40,
    width: int = 32,
    options: int = 2,
    steps: int = 2,
) -> EngineRequest:
    """Isolated yes/no questions about one state (its tokens, or how many random ones)."""
    prefix = tokens(rng, state, vocab) if isinstance(state, int) else state
    blocks = [question_block(rng, vocab, suffix=suffix, width=width, options=(options,)) for _ in range(questions)]
    return EngineRequest(prefix, tuple(blocks), steps)


def isolated_requests(
    shapes: Shapes, rng: np.random.Generator, vocab: int, *, width: int, steps: int
) -> list[EngineRequest]:
    """A request per node, a canvas per question, the template and the document in the state."""
    requests = []
    for case in shapes.cases:
        state = tokens(rng, TEMPLATE_TOKENS + case.document, vocab)
        for node in case.nodes:
            blocks = [
                question_block(rng, vocab, suffix=case.question, width=width, options=(count,))
                for count in node.options
            ]
            requests.append(EngineRequest(state, tuple(blocks), steps))
    return requests


def grouped_requests(shapes: Shapes, rng: np.random.Generator, vocab: int, *, steps: int) -> list[EngineRequest]:
    """A request per node, its questions on shared canvases of 256 tokens: the seed's 56 canvases."""
    requests = []
    for case in shapes.cases:
        state = tokens(rng, TEMPLATE_TOKENS + case.document, vocab)
        for node in case.nodes:
            blocks, first = [], 0
            for count in node.canvases:
                options = node.options[first : first + count]
                suffix = case.question * count
                blocks.append(question_block(rng, vocab, suffix=suffix, width=GROUPED_WIDTH, options=options))
                first += count
            requests.append(EngineRequest(state, tuple(blocks), steps))
    return requests
