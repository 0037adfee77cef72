"""A template's parts to token ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from openjev_server.canvas.schema import Answer, Schema
from openjev_server.canvas.template import LABEL, Control, Form, Part, Template
from openjev_server.canvas.tokenizer import TextTokenizer

__all__ = ["render", "render_each", "render_question"]


class _Tape:
    """Collects control ids and texts; text between two control tokens is encoded as one piece."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._items: list[int | list[str]] = []

    def write(self, parts: Iterable[Part], fields: Mapping[str, str], label: str = "") -> None:
        for part in parts:
            if isinstance(part, Control):
                self._items.append(self._tokenizer.control(label if part == LABEL else part.token))
                continue
            # str.format reads the template's text only; fields are put in as they are.
            text = part.format_map(fields)
            last = self._items[-1] if self._items else None
            if isinstance(last, list):
                last.append(text)
            else:
                self._items.append([text])

    def ids(self) -> list[int]:
        return self.batch([self])[0]

    @staticmethod
    def batch(tapes: Sequence[_Tape]) -> list[list[int]]:
        """The ids of several tapes of one tokenizer, their texts encoded together."""
        texts = ["".join(item) for tape in tapes for item in tape._items if isinstance(item, list)]
        encoded = iter(tapes[0]._tokenizer.encode_batch(texts) if texts else [])
        rows: list[list[int]] = []
        for tape in tapes:
            row: list[int] = []
            for item in tape._items:
                if isinstance(item, list):
                    row += next(encoded)
                else:
                    row.append(item)
            rows.append(row)
        return rows


def render(tokenizer: TextTokenizer, parts: Iterable[Part], **fields: str) -> list[int]:
    """Token ids of parts without answers. Raises UnknownControlToken."""
    tape = _Tape(tokenizer)
    tape.write(parts, fields)
    return tape.ids()


def render_each(
    tokenizer: TextTokenizer, parts: Sequence[Part], fields: Sequence[Mapping[str, str]]
) -> list[list[int]]:
    """`render` of the same parts for several sets of fields, at least one, in parallel where that pays."""
    tapes = [_Tape(tokenizer) for _ in fields]
    for tape, values in zip(tapes, fields, strict=True):
        tape.write(parts, values)
    return _Tape.batch(tapes)


def render_question(tokenizer: TextTokenizer, template: Template, schema: Schema, key: str) -> list[int]:
    """Token ids of one question's part of a suffix. Raises UnknownControlToken."""
    forms: dict[str, Form] = {"noul": template.noul, "choice": template.choice, "score": template.score}
    form = forms[schema.kind]
    fields = {"key": key, "instructions": schema.instructions}
    tape = _Tape(tokenizer)
    tape.write(form.head, fields)
    for answer in schema.answers:
        tape.write(form.described if answer.meaning else form.bare, _answer_fields(answer), answer.label)
    tape.write(form.tail, fields)
    return tape.ids()


def _answer_fields(answer: Answer) -> dict[str, str]:
    return {"name": answer.name, "meaning": answer.meaning, "value": answer.value}
