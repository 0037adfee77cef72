"""Canvas blocks before noise: what does not depend on the state."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from openjev_server.canvas.cache import WeightedCache
from openjev_server.canvas.render import Tape, encode, question_tape, render, render_question
from openjev_server.canvas.schema import Schema, schema_of
from openjev_server.canvas.template import Spelling, Template
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.canvas.trie import Trie, differing_columns
from openjev_server.engine.protocol import Int32
from openjev_server.questions import Noul

__all__ = ["CHARACTER_BYTES", "ISOLATED_KEY", "BlockPlan", "CanvasTooWide", "Field", "FieldReadout", "Planner"]

CHARACTER_BYTES = 4
"""The most that a Python string takes for each."""
ISOLATED_KEY = "answer"
"""What the one field of a canvas of its own is called."""


class CanvasTooWide(ValueError):
    """The spelling of an answer takes more canvas tokens than allowed."""

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"an answer takes {tokens} canvas tokens; the limit is {limit}")
        self.tokens = tokens
        self.limit = limit


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A stretch of canvas that holds one question's value."""

    question: Int32
    """Token ids of the question's text, shape [Q]."""
    tokens: Int32
    """Frozen tokens, and the first value's at the slots; shape [L]."""
    slots: Int32
    """Positions in `tokens`, ascending, shape [S]."""
    trie: Trie


@dataclass(frozen=True, slots=True, eq=False)
class FieldReadout:
    """Where one field's slots and candidates lie in its block."""

    slots: tuple[int, int]
    candidates: tuple[int, int]
    trie: Trie


@dataclass(frozen=True, slots=True, eq=False)
class BlockPlan:
    """A canvas block without its noise; arrays as in `CanvasBlock`, `canvas` has shape [C]."""

    suffix: Int32
    canvas: Int32
    slots: Int32
    candidates: Int32
    offsets: Int32
    fields: tuple[FieldReadout, ...]
    longest_question: int
    """Tokens of the suffix that its longest question would have alone."""

    @property
    def weight(self) -> int:
        """Bytes of its arrays."""
        own = (self.suffix, self.canvas, self.slots, self.candidates, self.offsets)
        return sum(array.nbytes for array in own) + sum(field.trie.nbytes for field in self.fields)


class Planner:
    """Spells questions on canvases of one template; thread-safe.

    `max_width` bounds the tokens of an answer, `cache_bytes` the arrays kept for sets of answers that come again in
    other questions (all yes/no questions share theirs).
    """

    def __init__(
        self, tokenizer: TextTokenizer, template: Template, *, max_width: int, cache_bytes: int = 16 * 2**20
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._max_width = max_width
        self._answers: WeightedCache[BlockPlan] = WeightedCache(cache_bytes)
        self._opening = render(tokenizer, template.opening)
        self._closing = render(tokenizer, () if template.prompt else (*template.closing, *template.turn_close))
        self._head = render(tokenizer, template.canvas_head)
        self._tail = render(tokenizer, template.canvas_tail)
        self._brace = tokenizer.encode("}")
        self._close = tokenizer.encode(template.grouped_close)
        self._fill = tokenizer.control(template.canvas_fill)
        space = tokenizer.encode(" ")
        # JSON allows blanks after a value; a tokenizer without a token for one blank pads with the fill instead.
        self._blank = space[0] if len(space) == 1 else self._fill

    def isolated(self, schema: Schema) -> BlockPlan:
        """One question alone: `{"answer": VALUE}`, rows evened out by the fill after the canvas tail.

        Raises CanvasTooWide.
        """
        return self.isolated_as(schema, encode(self._tokenizer, [self.isolated_tape(schema)])[0])

    def isolated_tape(self, schema: Schema) -> Tape:
        """The text of a question alone, to be encoded with others. Raises UnknownControlToken."""
        return question_tape(self._tokenizer, self._template, schema, ISOLATED_KEY)

    def isolated_as(self, schema: Schema, question: Sequence[int]) -> BlockPlan:
        """`isolated` for the token ids of its tape."""
        values = tuple(a.label if self._template.spelling is Spelling.LABEL else a.value for a in schema.answers)
        spelled = self._answers.get(values, lambda: self._spelled(schema))
        suffix = np.array([*self._opening, *question, *self._closing], dtype=np.int32)
        suffix.setflags(write=False)
        return BlockPlan(
            suffix, spelled.canvas, spelled.slots, spelled.candidates, spelled.offsets, spelled.fields, len(suffix)
        )

    def _spelled(self, schema: Schema) -> tuple[BlockPlan, int]:
        """The canvas of a question alone, without the question."""
        values = self._values(
            schema, f'{{"{ISOLATED_KEY}": ', "}" if self._template.spelling is Spelling.LITERAL else ""
        )
        end = self._tail if self._template.spelling is Spelling.LITERAL else self._brace + self._tail
        width = self._round(self._checked(len(self._head) + max(map(len, values)) + len(end)))
        rows = np.full((len(values), width), self._fill, dtype=np.int32)
        for row, value in zip(rows, values, strict=True):
            whole = self._head + value + end
            row[: len(whole)] = whole
        plan = self._block([_field([], rows)], [], [])
        return plan, plan.weight + CHARACTER_BYTES * schema.characters

    def grouped(self, schemas: Sequence[Schema], ids: Sequence[str] = ()) -> tuple[BlockPlan, ...]:
        """Questions in shared canvases `{"q1": VALUE, "q2": VALUE}`, in order, as many as fit in each.

        Values are padded on the right to the widest of their field. Fields are called by `ids`, one a question; left
        out, keys count from q1 in every canvas. Raises CanvasTooWide.
        """
        around = len(self._head) + len(self._close) + len(self._tail)
        blocks: list[BlockPlan] = []
        fields: list[Field] = []
        taken = around
        for number, schema in enumerate(schemas):
            own = ids[number] if ids else None
            field = self._grouped_field(schema, len(fields), own)
            if fields and self._round(taken + len(field.tokens)) > self._template.grouped_width:
                blocks.append(self._shared(fields))
                fields, taken = [], around
                field = self._grouped_field(schema, 0, own)
            fields.append(field)
            taken += len(field.tokens)
        if fields:
            blocks.append(self._shared(fields))
        return tuple(blocks)

    def least_grouped_width(self) -> int:
        """Tokens of a shared canvas that holds a yes/no field with a short key, and nothing else."""
        field = self._grouped_field(schema_of(Noul("q1", None)), 0, None)
        return self._round(len(self._head) + len(field.tokens) + len(self._close) + len(self._tail))

    def _grouped_field(self, schema: Schema, place: int, own: str | None) -> Field:
        key = f"q{place + 1}" if own is None else own
        question = render_question(self._tokenizer, self._template, schema, key)
        before = self._template.grouped_separator if place else self._template.grouped_open
        values = self._values(schema, f"{before}{json.dumps(key, ensure_ascii=False)}: ", "")
        rows = np.full((len(values), self._checked(max(map(len, values)))), self._blank, dtype=np.int32)
        for row, value in zip(rows, values, strict=True):
            row[: len(value)] = value
        return _field(question, rows)

    def _shared(self, fields: Sequence[Field]) -> BlockPlan:
        end = self._close + self._tail
        used = len(self._head) + sum(len(field.tokens) for field in fields) + len(end)
        return self._block(fields, self._head, end + [self._fill] * (self._round(used) - used))

    def _values(self, schema: Schema, before: str, after: str) -> list[list[int]]:
        """The tokens of every allowed value in its fixed text."""
        if self._template.spelling is Spelling.LABEL:
            head = self._tokenizer.encode(before)
            return [[*head, self._tokenizer.control(answer.label)] for answer in schema.answers]
        return self._tokenizer.encode_batch([before + answer.value + after for answer in schema.answers])

    def _round(self, tokens: int) -> int:
        return -(-tokens // self._template.width_multiple) * self._template.width_multiple

    def _checked(self, tokens: int) -> int:
        if tokens > self._max_width:
            raise CanvasTooWide(tokens, self._max_width)
        return tokens

    def _block(self, fields: Sequence[Field], head: list[int], end: list[int]) -> BlockPlan:
        tries = [field.trie for field in fields]
        places = list(accumulate((len(field.tokens) for field in fields), initial=len(head)))
        slots = list(accumulate((trie.slots for trie in tries), initial=0))
        candidates = list(accumulate((len(trie.candidates) for trie in tries), initial=0))
        offsets = [trie.offsets[1:] + first for trie, first in zip(tries, candidates, strict=False)]
        return BlockPlan(
            suffix=_joined([self._opening, *(field.question for field in fields), self._closing]),
            canvas=_joined([head, *(field.tokens for field in fields), end]),
            slots=_joined([field.slots + place for field, place in zip(fields, places, strict=False)]),
            candidates=_joined([trie.candidates for trie in tries]),
            offsets=_joined([[0], *offsets]),
            fields=tuple(
                FieldReadout((slots[i], slots[i + 1]), (candidates[i], candidates[i + 1]), trie)
                for i, trie in enumerate(tries)
            ),
            longest_question=len(self._opening) + max(len(field.question) for field in fields) + len(self._closing),
        )


def _joined(parts: Sequence[ArrayLike]) -> Int32:
    joined = np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])
    joined.setflags(write=False)
    return joined


def _field(question: Sequence[int], rows: Int32) -> Field:
    slots = differing_columns(rows)
    return Field(np.array(question, dtype=np.int32), rows[0].copy(), slots.astype(np.int32), Trie.of(rows[:, slots]))
