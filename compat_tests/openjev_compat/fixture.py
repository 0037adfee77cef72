"""One recorded answer to one question: what a line of a fixture file holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

__all__ = ["Fixture", "QuestionType", "Request", "Usage"]

QuestionType = Literal["noul", "choice", "score"]


@dataclass(frozen=True, slots=True)
class Request:
    """The text that was asked: a state and one question as the wire spells it."""

    state: Any
    question: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Usage:
    """Billed tokens of the whole request and how many questions it held."""

    input_tokens: int
    output_tokens: int
    questions: int

    @classmethod
    def of(cls, usage: object, *, questions: int) -> Usage | None:
        """From an answer's `usage`; None unless both counts are there and are counts."""
        counts = usage if isinstance(usage, Mapping) else {}
        sent, answered = counts.get("input_tokens"), counts.get("output_tokens")
        if type(sent) is int and type(answered) is int and min(sent, answered) >= 0:
            return cls(sent, answered, questions)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixture:
    """See `fixture.schema.json` for what each field means; `answer` has the wire's shape, or a bare label."""

    id: str
    source: str
    licence: str
    workflow: str
    case: str
    model: str
    recorded_at: str
    type: QuestionType
    request: Request | None
    answer: Mapping[str, Any]
    reference: Mapping[str, float] | None
    node: str | None = None
    run: str | None = None
    steps: int | None = None
    latency_ms: float | None = None
    usage: Usage | None = None
    options: tuple[str, ...] | None = None

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Fixture:
        """The fixture of a line that has passed the schema."""
        values = dict(line)
        if values["request"] is not None:
            values["request"] = Request(**values["request"])
        if values.get("usage") is not None:
            values["usage"] = Usage(**values["usage"])
        if values.get("options") is not None:
            values["options"] = tuple(values["options"])
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        """The line, without the optional fields that say nothing."""
        line: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None and field.name not in {"request", "reference"}:
                continue
            if isinstance(value, Request):
                value = {"state": value.state, "question": dict(value.question)}
            elif isinstance(value, Usage):
                value = {
                    "input_tokens": value.input_tokens,
                    "output_tokens": value.output_tokens,
                    "questions": value.questions,
                }
            elif isinstance(value, tuple):
                value = list(value)
            line[field.name] = value
        return line

    def to_line(self) -> str:
        return json.dumps(self.to_json(), ensure_ascii=False)

    @property
    def allowed(self) -> tuple[str, ...]:
        """The allowed answers as labels: true/false, option names, level numbers. Empty when nobody recorded them."""
        if self.type == "noul":
            return ("true", "false")
        criteria = self.request.question.get("criteria") if self.request is not None else None
        if criteria:
            return tuple(criteria) if self.type == "choice" else tuple(str(level) for level in range(len(criteria)))
        if self.options is not None:
            return self.options
        return tuple(self.answer.get("probabilities", ()))
