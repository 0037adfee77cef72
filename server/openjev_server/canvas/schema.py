"""A question as the model is shown it: texts only, without the user's id."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, NamedTuple

from openjev_server.questions import Choice, Noul, Question, Score, Text

__all__ = ["Answer", "Schema", "as_text", "schema_of"]


def as_text(text: Text | None) -> str:
    """A string as it is, nothing for None, anything else as JSON text the way the embedded checkpoint was trained."""
    if text is None:
        return ""
    return text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)


class Answer(NamedTuple):
    """One allowed answer."""

    name: str
    meaning: str
    """Its description; empty where there is none."""
    value: str
    """JSON text."""
    label: str
    """Control token."""


@dataclass(frozen=True, slots=True)
class Schema:
    """Equal schemas get equal tokens, whatever the question is called and wherever it stands in a request."""

    kind: Literal["noul", "choice", "score"]
    instructions: str
    answers: tuple[Answer, ...]

    @property
    def characters(self) -> int:
        return len(self.instructions) + sum(len(a.name) + len(a.meaning) + len(a.value) for a in self.answers)


def schema_of(question: Question) -> Schema:
    match question:
        case Noul(instructions=instructions, true=true, false=false):
            yes = Answer("Yes", as_text(true), "true", "<true>")
            no = Answer("No", as_text(false), "false", "<false>")
            return Schema("noul", as_text(instructions), (yes, no))
        case Choice(instructions=instructions, options=options):
            names = (
                Answer(o.name, as_text(o.description), json.dumps(o.name, ensure_ascii=False), f"<o{i}>")
                for i, o in enumerate(options)
            )
            return Schema("choice", as_text(instructions), tuple(names))
        case Score(instructions=instructions, levels=levels):
            texts = (Answer(as_text(level), "", str(i), f"<o{i}>") for i, level in enumerate(levels))
            return Schema("score", as_text(instructions), tuple(texts))
