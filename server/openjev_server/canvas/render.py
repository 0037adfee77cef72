"""A template's parts to token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from openjev_server.canvas.schema import Answer, Schema
from openjev_server.canvas.template import LABEL, Control, Form, Part, Template
from openjev_server.canvas.tokenizer import TextTokenizer

__all__ = ["Tape", "encode", "question_tape", "render", "render_each", "render_question", "tape_of"]


class Tape:
    """Control ids and texts on the way to token ids; text between two control tokens is encoded as one piece."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self.items: list[int | list[str]] = []

    def write(self, parts: Iterable[Part], fields: Mapping[str, str], label: str = "") -> None:
        for part in parts:
            if isinstance(part, Control):
                self.items.append(self._tokenizer.control(label if part == LABEL else part.token))
                continue
            # str.format reads the template's text only; fields are put in as they are.
            text = part.format_map(fields)
            last = self.items[-1] if self.items else None
            if isinstance(last, list):
                last.append(text)
            else:
                self.items.append([text])


def encode(tokenizer: TextTokenizer, tapes: Sequence[Tape]) -> list[list[int]]:
    """The token ids of every tape, their texts encoded together: in parallel where that pays."""
    encoded = iter(tokenizer.encode_batch(["".join(item) for t in tapes for item in t.items if isinstance(item, list)]))
    rows: list[list[int]] = []
    for tape in tapes:
        row: list[int] = []
        for item in tape.items:
            if isinstance(item, list):
                row += next(encoded)
            else:
                row.append(item)
        rows.append(row)
    return rows


def tape_of(tokenizer: TextTokenizer, parts: Iterable[Part], **fields: str) -> Tape:
    """Parts without answers. Raises UnknownControlToken."""
    tape = Tape(tokenizer)
    tape.write(parts, fields)
    return tape


def question_tape(tokenizer: TextTokenizer, template: Template, schema: Schema, key: str) -> Tape:
    """One question's part of a suffix. Raises UnknownControlToken."""
    forms: dict[str, Form] = {"noul": template.noul, "choice": template.choice, "score": template.score}
    form = forms[schema.kind]
    fields = {"key": key, "instructions": schema.instructions}
    tape = Tape(tokenizer)
    tape.write(form.head, fields)
    for answer in schema.answers:
        tape.write(form.described if answer.meaning else form.bare, _answer_fields(answer), answer.label)
    tape.write(form.tail, fields)
    return tape


def render(tokenizer: TextTokenizer, parts: Iterable[Part], **fields: str) -> list[int]:
    """Token ids of parts without answers. Raises UnknownControlToken."""
    return encode(tokenizer, [tape_of(tokenizer, parts, **fields)])[0]


def render_each(
    tokenizer: TextTokenizer, parts: Sequence[Part], fields: Sequence[Mapping[str, str]]
) -> list[list[int]]:
    """`render` of the same parts for several sets of fields."""
    return encode(tokenizer, [tape_of(tokenizer, parts, **values) for values in fields])


def render_question(tokenizer: TextTokenizer, template: Template, schema: Schema, key: str) -> list[int]:
    """Token ids of one question's part of a suffix. Raises UnknownControlToken."""
    return encode(tokenizer, [question_tape(tokenizer, template, schema, key)])[0]


def _answer_fields(answer: Answer) -> dict[str, str]:
    return {"name": answer.name, "meaning": answer.meaning, "value": answer.value}
