"""A parsed request to the arrays an engine runs, and the way back from its slots to the questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np

from openjev_server.canvas.cache import WeightedCache
from openjev_server.canvas.noise import HashedNoise, NoiseSource, SharedNoise
from openjev_server.canvas.plan import CHARACTER_BYTES, ISOLATED_KEY, BlockPlan, CanvasTooWide, Planner
from openjev_server.canvas.prompt import Prompt
from openjev_server.canvas.render import Tape, encode, render_each, tape_of
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
        # A set of answers is small and shared by many questions.
        for_answers = cache_bytes // 8
        self._planner = Planner(self.tokenizer, template, max_width=max_canvas_tokens, cache_bytes=for_answers)
        self._noise_key = noise or f"{template.id}/{template.hash}"
        self._prompt = Prompt(template.prompt) if template.prompt else None
        self._plans: WeightedCache[tuple[BlockPlan, ...]] = WeightedCache(cache_bytes - for_answers)

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
        if self._prompt is None:
            tape = tape_of(self.tokenizer, (*self.template.turn_open, *self.template.state), state=as_text(state))
            plans, (prefix_ids,) = self._plan(questions, layout, [tape])
            prefix = np.array(prefix_ids, dtype=np.int32)
            noise = [self._noise(prefix)] * len(plans)
        else:
            plans, _ = self._plan(questions, layout, [])
            prompts = self._prompts(self._prompt, state, questions, plans, layout)
            noise = [self._noise(prompt) for prompt in prompts]
            prefix = _common(prompts)
            suffixes = [prompt[len(prefix) :] for prompt in prompts]
            plans = [
                replace(plan, suffix=suffix, longest_question=len(suffix))
                for plan, suffix in zip(plans, suffixes, strict=True)
            ]
        blocks = self._blocks(plans, noise, steps=steps, replicas=replicas)
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

    def _blocks(
        self, plans: Sequence[BlockPlan], noise: Sequence[NoiseSource], *, steps: int, replicas: int
    ) -> tuple[CanvasBlock, ...]:
        # What a prompt's suffix is depends on what was asked with it; its noise is keyed by the whole of it.
        seeds = [plan.suffix if self._prompt is None else plan.suffix[:0] for plan in plans]
        alike: dict[tuple[int, int], list[int]] = {}
        for number, (plan, source) in enumerate(zip(plans, noise, strict=True)):
            alike.setdefault((id(plan.canvas), id(source)), []).append(number)
        canvases: dict[int, Int32] = {}
        for numbers in alike.values():
            plan, source = plans[numbers[0]], noise[numbers[0]]
            drawn = source.draw([seeds[number] for number in numbers], plan.canvas, plan.slots, replicas)
            canvases.update(zip(numbers, drawn, strict=True))
        bound = self.template.entropy_bound
        blocks = []
        for number, plan in enumerate(plans):
            redraw = None
            if bound is not None and steps > 1 and len(plan.slots):
                redraw = noise[number].redraw(
                    seeds[number], plan.canvas, plan.slots, replicas, steps=steps, entropy_bound=bound
                )
            blocks.append(CanvasBlock(plan.suffix, canvases[number], plan.slots, plan.candidates, plan.offsets, redraw))
        return tuple(blocks)

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

    def _plan(
        self, questions: Sequence[Question], layout: Layout, others: Sequence[Tape]
    ) -> tuple[list[BlockPlan], list[list[int]]]:
        """The blocks of the questions, and the token ids of the other tapes, which are encoded along with them."""
        schemas = tuple(schema_of(question) for question in questions)
        if layout is Layout.ISOLATED:
            return self._isolated(schemas, others)
        ids = tuple(question.id for question in questions) if self.template.keys is Keys.IDS else ()
        plans = self._plans.get((schemas, ids), partial(self._grouped, schemas, ids))
        return list(plans), encode(self.tokenizer, others)

    def _isolated(self, schemas: Sequence[Schema], others: Sequence[Tape]) -> tuple[list[BlockPlan], list[list[int]]]:
        plans: dict[Schema, BlockPlan] = {}
        new: dict[Schema, Tape] = {}
        for schema in dict.fromkeys(schemas):
            found = self._plans.find(schema)
            if found is None:
                new[schema] = self._planner.isolated_tape(schema)
            else:
                (plans[schema],) = found
        encoded = encode(self.tokenizer, [*others, *new.values()])
        for schema, question in zip(new, encoded[len(others) :], strict=True):
            plans[schema] = plan = self._planner.isolated_as(schema, question)
            self._plans.add(schema, (plan,), plan.weight + CHARACTER_BYTES * schema.characters)
        return [plans[schema] for schema in schemas], encoded[: len(others)]

    def _grouped(self, schemas: tuple[Schema, ...], ids: tuple[str, ...]) -> tuple[tuple[BlockPlan, ...], int]:
        plans = self._planner.grouped(schemas, ids)
        characters = sum(schema.characters for schema in schemas)
        return plans, sum(plan.weight for plan in plans) + CHARACTER_BYTES * characters


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
