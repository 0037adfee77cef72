"""Data that a calibration is fitted on: JSON lines of questions with what is right, or with what Jev answered.

Two kinds of line:

- a labelled row: `type`, `state`, `instructions`, `criteria` as the wire has them, `gold` (true or false, an option's
  name, a level's number) or `dist` (P(true); shares by option; shares in the order of the levels), perhaps a `task`;
- a recorded answer (a fixture): `request` of `state` and `question`, `answer` in the wire's form, and a `case`.

A recorded line without its text (`request` is null), or whose answer is no distribution and no label (a score alone),
is skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openjev_server.calibration.fit import one_hot
from openjev_server.calibration.kinds import kind_of
from openjev_server.calibration.scalings import Float
from openjev_server.questions import Choice, Question, answer_count
from openjev_server.wire.errors import WireError
from openjev_server.wire.parse import parse_request
from openjev_server.wire.request import WireRequest

__all__ = ["BY_STATE", "DataError", "Labelled", "read_labelled"]

BY_STATE = "state"
QUESTION = "q"


class DataError(ValueError):
    """A line that cannot be used; the message names file and line."""


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """One question about a state, and what is right."""

    request: WireRequest
    question: Mapping[str, Any]
    """In wire form."""
    target: Float
    """Distribution over the answers in question order."""
    group: str
    task: str | None

    @property
    def parsed(self) -> Question:
        return self.request.questions[0]


def read_labelled(path: Path, *, by: str | None = None) -> tuple[list[Labelled], int]:
    """The usable lines, and how many recorded ones were skipped.

    Args:
        path: of the file.
        by: what rows must share to stay on one side of a split: `state`, or a key of the line. None: a recorded
            answer's `case`, and for other lines the state.

    Raises DataError for a file that cannot be read and for the first line that cannot be used.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    rows, skipped = [], 0
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                raise ValueError("not a JSON object")
            if "request" in line and (line["request"] is None or not _says_enough(line.get("answer"))):
                skipped += 1
                continue
            rows.append(_labelled(line, by))
        except WireError as error:
            raise DataError(f"{path}:{number}: {json.dumps(error.detail, ensure_ascii=False)}") from error
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}:{number}: {error}") from error
    if not rows:
        raise DataError(f"{path}: no line with a question" + (" that can be used" if skipped else ""))
    return rows, skipped


def _labelled(line: Mapping[str, Any], by: str | None) -> Labelled:
    recorded = "request" in line
    if recorded:
        asked = line["request"]
        if not isinstance(asked, dict) or not isinstance(asked.get("question"), dict) or "state" not in asked:
            raise ValueError("`request` needs `state` and `question`")
        state, question = asked["state"], asked["question"]
    else:
        if "state" not in line or "type" not in line:
            raise ValueError("needs `state` and `type`, or a recorded `request`")
        state = line["state"]
        names = ("type", "instructions", "criteria")
        question = {name: line[name] for name in names if line.get(name) is not None}
    request = parse_request(
        {"model": "jev-latest", "state": state, "questions": {QUESTION: question}}, unknown_fields="reject"
    )
    parsed = request.questions[0]
    target = _target_of_answer(parsed, line.get("answer")) if recorded else _target_of_label(parsed, line)
    by = by or ("case" if recorded and "case" in line else BY_STATE)
    key = state if by == BY_STATE else line.get(by)
    if key is None:
        raise ValueError(f"has no {by!r} to group by")
    group = hashlib.blake2b(json.dumps(key, sort_keys=True).encode(), digest_size=8).hexdigest()
    task = line.get("task")
    return Labelled(request, question, target, group, None if task is None else str(task))


def _target_of_label(question: Question, line: Mapping[str, Any]) -> Float:
    if line.get("dist") is not None:
        return _distribution(question, line["dist"], "dist")
    gold = line.get("gold")
    kind = kind_of(question)
    if kind == "noul" and isinstance(gold, bool):
        return one_hot(2, 0 if gold else 1)
    if isinstance(question, Choice) and isinstance(gold, str):
        return one_hot(answer_count(question), _place(question, gold, "gold"))
    if kind == "score" and isinstance(gold, int) and not isinstance(gold, bool) and 0 <= gold < answer_count(question):
        return one_hot(answer_count(question), gold)
    raise ValueError(f"`gold` is no answer of this {kind}: {json.dumps(gold)[:80]}")


def _target_of_answer(question: Question, answer: Any) -> Float:
    kind = kind_of(question)
    if not isinstance(answer, dict) or answer.get("type", kind) != kind:
        raise ValueError(f"`answer` is no answer to a {kind}")
    if kind == "noul":
        return _distribution(question, answer.get("noul"), "answer")
    if isinstance(answer.get("probabilities"), dict):
        given = answer["probabilities"]
        if kind == "score":
            given = [given.get(str(level), 0.0) for level in range(answer_count(question))]
        return _distribution(question, given, "answer")
    if isinstance(question, Choice):
        return one_hot(answer_count(question), _place(question, str(answer.get("choice")), "answer"))
    raise ValueError("`answer` has no probabilities")


def _says_enough(answer: Any) -> bool:
    return not isinstance(answer, dict) or not answer.keys().isdisjoint({"noul", "choice", "probabilities"})


def _distribution(question: Question, given: Any, name: str) -> Float:
    count = answer_count(question)
    values: list[Any]
    if kind_of(question) == "noul":
        values = [given, 1 - given] if _number(given) else []
    elif isinstance(question, Choice):
        values = [0.0] * count
        for option, share in given.items() if isinstance(given, dict) else ():
            values[_place(question, option, name)] = share
    else:
        values = list(given) if isinstance(given, list) else []
    if len(values) != count or not all(_number(x) and 0 <= x <= 1.000001 for x in values) or not sum(values) > 0:
        raise ValueError(f"`{name}` is no distribution over the {count} answers")
    target: Float = np.array(values, np.float64) / sum(values)
    return target


def _place(question: Choice, option: str, name: str) -> int:
    names = [one.name for one in question.options]
    if option not in names:
        raise ValueError(f"`{name}` names {option!r}, which is no option")
    return names.index(option)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))
