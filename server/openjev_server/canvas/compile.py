"""A parsed request to the arrays an engine runs, and the way back from its slots to the questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from openjev_server.canvas.cache import WeightedCache
from openjev_server.canvas.noise import NoiseSource
from openjev_server.canvas.plan import BlockPlan, CanvasTooWide, Planner
from openjev_server.canvas.render import render
from openjev_server.canvas.schema import Schema, as_text, schema_of
from openjev_server.canvas.template import Spelling, Template
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.canvas.trie import Trie
from openjev_server.engine.protocol import CanvasBlock, EngineRequest
from openjev_server.questions import Question, Text

__all__ = ["CanvasTooWide", "CompiledRequest", "Compiler", "Layout", "SlotReadout", "Usage"]


class Layout(StrEnum):
    """How a request's questions share canvases."""

    ISOLATED = "isolated"
    """Each question has a canvas of its own and sees the state and itself."""
    GROUPED = "grouped"
    """Questions share canvases and see each other."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What is billed and reported."""

    input_tokens: int
    """The state once, and every suffix."""
    output_tokens: int
    """Canvas tokens of one replica of every block."""


@dataclass(frozen=True, slots=True, eq=False)
class SlotReadout:
    """Where one question's answer stands in an engine's result."""

    block: int
    slots: tuple[int, int]
    """First slot of its block, and one past the last."""
    candidates: tuple[int, int]
    """First candidate of its block (the axis K), and one past the last."""
    trie: Trie


@dataclass(frozen=True, slots=True, eq=False)
class CompiledRequest:
    request: EngineRequest
    readouts: tuple[SlotReadout, ...]
    """One per question, in order."""
    usage: Usage
    longest_prompt: int
    """State and longest question, tokens."""


class Compiler:
    """Compiles requests for one tokenizer and template; thread-safe.

    `cache_bytes` bounds the arrays kept for questions that come again about other states, `max_canvas_tokens` the
    width of one question's canvas. Raises UnknownControlToken where the tokenizer lacks what the template places.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        template: Template,
        *,
        cache_bytes: int = 64 * 2**20,
        max_canvas_tokens: int = 4096,
    ) -> None:
        self.tokenizer = tokenizer.guarding(_controls(template))
        self.template = template
        self._planner = Planner(self.tokenizer, template, max_width=max_canvas_tokens)
        self._plans: WeightedCache[tuple[BlockPlan, ...]] = WeightedCache(cache_bytes)

    def compile(
        self,
        state: Text,
        questions: Sequence[Question],
        *,
        layout: Layout = Layout.ISOLATED,
        steps: int = 1,
        replicas: int = 1,
    ) -> CompiledRequest:
        """Blocks in the order of the questions; nothing of a question depends on its id.

        Raises ValueError without questions, steps or replicas, CanvasTooWide, and UnknownControlToken for more
        options than the template has labels.
        """
        if not questions or steps < 1 or replicas < 1:
            raise ValueError("a request has at least one question, one step and one replica")
        prefix = np.array(render(self.tokenizer, self.template.state, state=as_text(state)), dtype=np.int32)
        plans = self._plan(tuple(schema_of(question) for question in questions), layout)
        noise = NoiseSource(f"{self.template.id}/{self.template.hash}", prefix, self.tokenizer.plain)
        blocks = tuple(
            CanvasBlock(
                suffix=plan.suffix,
                canvases=noise.draw(plan.suffix, plan.canvas, plan.slots, replicas),
                slots=plan.slots,
                candidates=plan.candidates,
                offsets=plan.offsets,
            )
            for plan in plans
        )
        return CompiledRequest(
            request=EngineRequest(prefix, blocks, steps, self.template.self_conditioning),
            readouts=tuple(
                SlotReadout(index, field.slots, field.candidates, field.trie)
                for index, plan in enumerate(plans)
                for field in plan.fields
            ),
            usage=Usage(
                input_tokens=len(prefix) + sum(len(plan.suffix) for plan in plans),
                output_tokens=sum(len(plan.canvas) for plan in plans),
            ),
            longest_prompt=len(prefix) + max(plan.longest_question for plan in plans),
        )

    def _plan(self, schemas: tuple[Schema, ...], layout: Layout) -> list[BlockPlan]:
        groups = [(schema,) for schema in schemas] if layout is Layout.ISOLATED else [schemas]
        plans: list[BlockPlan] = []
        for group in groups:
            plans += self._plans.get((layout, group), partial(self._made, group, layout))
        return plans

    def _made(self, schemas: tuple[Schema, ...], layout: Layout) -> tuple[tuple[BlockPlan, ...], int]:
        if layout is Layout.ISOLATED:
            plans = tuple(self._planner.isolated(schema) for schema in schemas)
        else:
            plans = self._planner.grouped(schemas)
        # Four bytes a character, the most a Python string takes, for the texts that are the key.
        return plans, sum(plan.weight for plan in plans) + 4 * sum(schema.characters for schema in schemas)


def _controls(template: Template) -> tuple[str, ...]:
    labels = ("<true>", "<false>", *(f"<o{i}>" for i in range(255))) if template.spelling is Spelling.LABEL else ()
    return (*template.controls, *labels)
