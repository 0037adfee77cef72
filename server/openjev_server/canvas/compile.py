"""A parsed request to the arrays an engine runs, and the way back from its slots to the questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np

from openjev_server.canvas.cache import WeightedCache
from openjev_server.canvas.noise import HashedNoise, NoiseSource, SharedNoise
from openjev_server.canvas.plan import ISOLATED_KEY, BlockPlan, CanvasTooWide, Planner
from openjev_server.canvas.prompt import Prompt
from openjev_server.canvas.render import render, render_each
from openjev_server.canvas.schema import Schema, as_text, schema_of
from openjev_server.canvas.template import Keys, Noise, Spelling, Template
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.canvas.trie import Trie
from openjev_server.engine.protocol import CanvasBlock, EngineRequest, Int32
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
    width of one question's canvas. Noise is drawn for `noise`, the template's id and hash where that is empty: equal
    noise for templates that differ, or other noise for the same one. Raises UnknownControlToken where the tokenizer
    lacks what the template places, and PromptError for a template's prompt that is not Jinja.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        template: Template,
        *,
        cache_bytes: int = 64 * 2**20,
        max_canvas_tokens: int = 4096,
        noise: str = "",
    ) -> None:
        self.tokenizer = tokenizer.guarding(_controls(template))
        self.template = template
        self._planner = Planner(self.tokenizer, template, max_width=max_canvas_tokens)
        self._noise_key = noise or f"{template.id}/{template.hash}"
        self._prompt = Prompt(template.prompt) if template.prompt else None
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

        Except under a template that writes the ids into canvas and prompt. Raises ValueError without questions, steps
        or replicas, CanvasTooWide, PromptError, and UnknownControlToken for more options than the template has labels.
        """
        if not questions or steps < 1 or replicas < 1:
            raise ValueError("a request has at least one question, one step and one replica")
        plans = self._plan(questions, layout)
        if self._prompt is None:
            parts = (*self.template.turn_open, *self.template.state)
            prefix = np.array(render(self.tokenizer, parts, state=as_text(state)), dtype=np.int32)
            noise = [self._noise(prefix)] * len(plans)
        else:
            prompts = self._prompts(self._prompt, state, questions, plans, layout)
            noise = [self._noise(prompt) for prompt in prompts]
            prefix = _common(prompts)
            suffixes = [prompt[len(prefix) :] for prompt in prompts]
            plans = [
                replace(plan, suffix=suffix, longest_question=len(suffix))
                for plan, suffix in zip(plans, suffixes, strict=True)
            ]
        blocks = tuple(
            self._block(plan, source, steps=steps, replicas=replicas) for plan, source in zip(plans, noise, strict=True)
        )
        return CompiledRequest(
            request=EngineRequest(
                prefix, blocks, steps, self.template.self_conditioning, self.template.temperatures(steps)
            ),
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

    def _block(self, plan: BlockPlan, noise: NoiseSource, *, steps: int, replicas: int) -> CanvasBlock:
        # What a prompt's suffix is depends on what was asked with it; its noise is keyed by the whole of it.
        suffix = plan.suffix if self._prompt is None else plan.suffix[:0]
        bound = self.template.entropy_bound
        redraw = None
        if bound is not None and steps > 1 and len(plan.slots):
            redraw = noise.redraw(suffix, plan.canvas, plan.slots, replicas, steps=steps, entropy_bound=bound)
        return CanvasBlock(
            suffix=plan.suffix,
            canvases=noise.draw(suffix, plan.canvas, plan.slots, replicas),
            slots=plan.slots,
            candidates=plan.candidates,
            offsets=plan.offsets,
            redraw=redraw,
        )

    def _noise(self, state: Int32) -> NoiseSource:
        if self.template.noise is Noise.SHARED:
            return SharedNoise(np.arange(self.tokenizer.vocab_size, dtype=np.int32))
        return HashedNoise(self._noise_key, state, self.tokenizer.plain)

    def _prompts(
        self, prompt: Prompt, state: Text, questions: Sequence[Question], plans: Sequence[BlockPlan], layout: Layout
    ) -> list[Int32]:
        """The whole prompt of every canvas."""
        template = self.template
        texts = []
        first = 0
        for plan in plans:
            asked = questions[first : first + len(plan.fields)]
            first += len(asked)
            if layout is Layout.ISOLATED:
                keys = [ISOLATED_KEY]
            elif template.keys is Keys.IDS:
                keys = [question.id for question in asked]
            else:
                keys = [f"q{place + 1}" for place in range(len(asked))]
            text = prompt.text(state, asked, keys)
            texts.append({"prompt": text.strip() if template.trim else text})
        parts = (*template.turn_open, "{prompt}", *template.turn_close)
        return [np.array(ids, dtype=np.int32) for ids in render_each(self.tokenizer, parts, texts)]

    def _plan(self, questions: Sequence[Question], layout: Layout) -> list[BlockPlan]:
        schemas = tuple(schema_of(question) for question in questions)
        groups = [(schema,) for schema in schemas] if layout is Layout.ISOLATED else [schemas]
        named = layout is Layout.GROUPED and self.template.keys is Keys.IDS
        ids = tuple(question.id for question in questions) if named else ()
        plans: list[BlockPlan] = []
        for group in groups:
            plans += self._plans.get((layout, group, ids), partial(self._made, group, ids, layout))
        return plans

    def _made(
        self, schemas: tuple[Schema, ...], ids: tuple[str, ...], layout: Layout
    ) -> tuple[tuple[BlockPlan, ...], int]:
        if layout is Layout.ISOLATED:
            plans = tuple(self._planner.isolated(schema) for schema in schemas)
        else:
            plans = self._planner.grouped(schemas, ids)
        # Four bytes a character, the most a Python string takes, for the texts that are the key.
        return plans, sum(plan.weight for plan in plans) + 4 * sum(schema.characters for schema in schemas)


def _common(prompts: Sequence[Int32]) -> Int32:
    """The tokens that all prompts begin with."""
    first = prompts[0]
    length = min(len(prompt) for prompt in prompts)
    for prompt in prompts[1:]:
        differing = np.flatnonzero(first[:length] != prompt[:length])
        length = int(differing[0]) if len(differing) else length
    return first[:length]


def _controls(template: Template) -> tuple[str, ...]:
    labels = ("<true>", "<false>", *(f"<o{i}>" for i in range(255))) if template.spelling is Spelling.LABEL else ()
    return (*template.controls, *labels)
