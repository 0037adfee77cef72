"""A whole user turn written by a template's own Jinja source.

The source sees:

- `document`: the state, a string or JSON data
- `fields`: the questions of one canvas, each with `key` (what the canvas calls it), `id` (what the user calls it),
  `type`, `question` (instructions, None where there are none), `criteria` (noul: an object with `true` and `false`,
  choice: an object of descriptions by name, score: a list; None without any) and `allowed` (a list of JSON values)
- the filter `json`: JSON text, non-ASCII characters as they are; it takes `json.dumps`'s arguments
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from openjev_server.questions import Choice, Noul, Question, Score, Text

if TYPE_CHECKING:
    from jinja2 import Template as JinjaTemplate

__all__ = ["Prompt", "PromptError"]


class PromptError(ValueError):
    """A template's Jinja source that cannot be used."""


class Prompt:
    """Compiled once; thread-safe. Raises PromptError for source that is not Jinja."""

    def __init__(self, source: str) -> None:
        from jinja2 import StrictUndefined, TemplateSyntaxError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

        environment = ImmutableSandboxedEnvironment(
            undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )
        environment.filters["json"] = _json
        try:
            self._template: JinjaTemplate = environment.from_string(source)
        except TemplateSyntaxError as error:
            raise PromptError(f"the prompt is not a Jinja template: {error}") from error

    def text(self, state: Text, questions: Sequence[Question], keys: Sequence[str]) -> str:
        """The user turn that asks these questions about the state. Raises PromptError."""
        from jinja2 import TemplateError

        fields = [_field(question, key) for question, key in zip(questions, keys, strict=True)]
        try:
            return self._template.render(document=state, fields=fields)
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise PromptError(f"the prompt cannot be rendered: {error}") from error


def _json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _field(question: Question, key: str) -> dict[str, Any]:
    common = {"key": key, "id": question.id, "question": question.instructions}
    match question:
        case Noul(true=true, false=false):
            given = {name: text for name, text in (("true", true), ("false", false)) if text is not None}
            return {**common, "type": "noul", "criteria": given or None, "allowed": [False, True]}
        case Choice(options=options):
            criteria = {option.name: option.description for option in options}
            return {**common, "type": "choice", "criteria": criteria, "allowed": list(criteria)}
        case Score(levels=levels):
            return {**common, "type": "score", "criteria": list(levels), "allowed": list(range(len(levels)))}
