"""What `ask` reads: the state, and questions in a JSON file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["InputError", "QuestionFile", "read_questions", "read_state"]

STDIN = "-"


class InputError(ValueError):
    """A state or a question file that cannot be used; the message says why."""


class QuestionFile:
    """A file of questions, or of a whole request."""

    def __init__(self, questions: dict[str, Any], state: Any = None) -> None:
        self.questions = questions
        self.state = state
        """None when the file has questions alone."""


def read_state(source: str) -> Any:
    """The state of a file, or of stdin for `-`: parsed where the file is called `.json`, otherwise its text.

    One final newline, which editors and shells add, is not part of a text. Raises InputError.
    """
    text = _read(source)
    if source.lower().endswith(".json"):
        return _parse(source, text)
    return text.removesuffix("\n").removesuffix("\r")


def read_questions(path: str) -> QuestionFile:
    """Reads `{"id": {"type": ...}, ...}`, or a request body with `questions` and, if you like, `state`.

    Raises InputError.
    """
    value = _parse(path, _read(path))
    if not isinstance(value, dict):
        raise InputError(f"{_called(path)} must hold a JSON object of questions")
    inner = value.get("questions")
    if isinstance(inner, dict) and not isinstance(inner.get("type"), str):
        return QuestionFile(inner, value.get("state"))
    return QuestionFile(value)


def _read(source: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{_called(source)} is not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{source}: {error.strerror or error}") from None


def _parse(source: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{_called(source)} is not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{_called(source)} is nested too deeply") from None


def _called(source: str) -> str:
    return "stdin" if source == STDIN else source
