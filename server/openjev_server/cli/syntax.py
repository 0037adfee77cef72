"""Questions as they are written on the command line, turned into their wire form.

- noul: ``[@ID ]INSTRUCTIONS``, taken as it stands
- choice: ``[@ID ]INSTRUCTIONS=OPTION[:DESCRIPTION],OPTION[:DESCRIPTION],...``
- score: ``[@ID ]INSTRUCTIONS=LEVEL|LEVEL|...``, lowest first

The first ``=`` ends the instructions, which may be empty. A backslash takes the meaning from the ``= , : | \\`` that
follows it. Blanks around every part are left out. Without an id questions are called noul1, choice1, choice2, ...
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

__all__ = ["QuestionSyntaxError", "parse_choice", "parse_noul", "parse_score", "questions_from_flags"]

_ID = re.compile(r"@(\S+)(?:\s+(.*))?", re.DOTALL)
_ESCAPE = re.compile(r"\\([=,:|\\])")
_PIECE = re.compile(r"\\[=,:|\\]|.", re.DOTALL)

Named = tuple[str | None, dict[str, Any]]
"""A question's own id, if it has one, and its wire form."""


class QuestionSyntaxError(ValueError):
    """A question flag that cannot be read; the message quotes it."""


def questions_from_flags(
    nouls: Iterable[str], choices: Iterable[str], scores: Iterable[str]
) -> dict[str, dict[str, Any]]:
    """The `questions` of a request: nouls first, then choices, then scores.

    Raises QuestionSyntaxError, also for an id that occurs twice.
    """
    questions: dict[str, dict[str, Any]] = {}
    for kind, flags, parse in (
        ("noul", nouls, parse_noul),
        ("choice", choices, parse_choice),
        ("score", scores, parse_score),
    ):
        for number, flag in enumerate(flags, start=1):
            name, question = parse(flag)
            key = name or f"{kind}{number}"
            if key in questions:
                raise QuestionSyntaxError(f"two questions are called {key!r}")
            questions[key] = question
    return questions


def parse_noul(flag: str) -> Named:
    """Raises QuestionSyntaxError when there are no instructions."""
    name, text = _split_id(flag)
    if not text:
        raise QuestionSyntaxError(f"--noul {flag!r} asks nothing")
    return name, {"type": "noul", "instructions": text}


def parse_choice(flag: str) -> Named:
    """Raises QuestionSyntaxError: no ``=``, an option without a name, or one that occurs twice."""
    name, instructions, answers = _split_answers("--choice", flag, "=OPTION,OPTION")
    criteria: dict[str, str | None] = {}
    for answer in _split(answers, ","):
        option, *description = _split(answer, ":", most=1)
        option = _plain(option)
        if not option:
            raise QuestionSyntaxError(f"--choice {flag!r} has an option without a name")
        if option in criteria:
            raise QuestionSyntaxError(f"--choice {flag!r} has the option {option!r} twice")
        criteria[option] = (_plain(description[0]) or None) if description else None
    return name, _question("choice", instructions, criteria)


def parse_score(flag: str) -> Named:
    """Raises QuestionSyntaxError: no ``=``, or an empty level."""
    name, instructions, answers = _split_answers("--score", flag, "=LEVEL|LEVEL")
    levels = [_plain(level) for level in _split(answers, "|")]
    if not all(levels):
        raise QuestionSyntaxError(f"--score {flag!r} has an empty level")
    return name, _question("score", instructions, levels)


def _question(kind: str, instructions: str, criteria: Any) -> dict[str, Any]:
    asked = {"instructions": instructions} if instructions else {}
    return {"type": kind, **asked, "criteria": criteria}


def _split_id(flag: str) -> tuple[str | None, str]:
    found = _ID.fullmatch(flag.strip())
    return (found[1], (found[2] or "").strip()) if found else (None, flag.strip())


def _split_answers(option: str, flag: str, example: str) -> tuple[str | None, str, str]:
    name, text = _split_id(flag)
    instructions, *answers = _split(text, "=", most=1)
    if not answers:
        raise QuestionSyntaxError(f"{option} {flag!r} needs its answers: {example}")
    return name, _plain(instructions), answers[0]


def _split(text: str, mark: str, *, most: int | None = None) -> list[str]:
    """Cuts at every `mark` (at the first `most`) that has no backslash before it; backslashes stay."""
    parts = [""]
    for piece in _pieces(text):
        if piece == mark and (most is None or len(parts) <= most):
            parts.append("")
        else:
            parts[-1] += piece
    return parts


def _pieces(text: str) -> Iterator[str]:
    return (match[0] for match in _PIECE.finditer(text))


def _plain(text: str) -> str:
    return _ESCAPE.sub(r"\1", text.strip())
