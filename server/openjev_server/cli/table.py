"""Answers for people: one table, a bar for every probability."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Answered", "print_answers"]

BAR_WIDTH = 24
SHORTEST_LABEL, LONGEST_LABEL = 12, 40
"""Columns; longer labels are folded."""
SHOWN_OPTIONS = 10
"""The likeliest options of a choice; how many more there are, and what they sum to, is said."""
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
EIGHTHS = " ▏▎▍▌▋▊▉"
ASCII_EIGHTHS = "    ####"


@dataclass(frozen=True, slots=True)
class Answered:
    """What a server said, and what it was asked."""

    body: Mapping[str, Any]
    """The response in wire form."""
    fingerprint: str | None = None
    milliseconds: float | None = None


def print_answers(console: Console, questions: Mapping[str, Any], answered: Answered) -> None:
    """Prints a table of all answers in wire form, and a line about what produced them."""
    blocks = "utf" in (console.encoding or "").lower()
    labels = [label for answer in answered.body["answers"].values() for label, _, _ in _rows(answer)]
    width = max(map(cell_len, labels), default=0)
    for name, answer in answered.body["answers"].items():
        console.print(_heading(name, questions.get(name), answer, arrow="→" if blocks else "->"))
        console.print(_bars(answer, blocks=blocks, label_width=max(SHORTEST_LABEL, min(width, LONGEST_LABEL))))
        console.print()
    console.print(Text(_foot(answered, " · " if blocks else ", "), "dim"), overflow="fold")


def _bars(answer: Mapping[str, Any], *, blocks: bool, label_width: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=1)
    table.add_column(width=label_width, overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, width=BAR_WIDTH)
    for label, probability, chosen in _rows(answer):
        style = "bold green" if chosen else "none"
        bar = _bar(probability, blocks=blocks)
        table.add_row("", Text(label, style), Text(f"{probability:.2f}", style), Text(bar, style))
    if hidden := _hidden(answer):
        table.add_row("", Text(f"and {len(hidden)} more", "dim"), Text(f"{sum(hidden):.2f}", "dim"))
    return table


def _heading(name: str, question: Any, answer: Mapping[str, Any], *, arrow: str) -> Text:
    instructions = question.get("instructions") if isinstance(question, Mapping) else None
    asked = _text(instructions) if instructions else ""
    return Text.assemble(
        (_text(name), "bold cyan"), " " if asked else "", asked, f" {arrow} ", (_verdict(answer), "bold")
    )


def _verdict(answer: Mapping[str, Any]) -> str:
    match answer.get("type"):
        case "noul":
            return "yes" if answer["noul"] >= 0.5 else "no"
        case "choice":
            return f"{_text(answer['choice'])}  (confidence {answer['confidence']})"
        case "score":
            return f"{answer['score']} of {len(answer['legend']) - 1}  (confidence {answer['confidence']})"
        case _:
            return json.dumps(answer, ensure_ascii=False)


def _rows(answer: Mapping[str, Any]) -> list[tuple[str, float, bool]]:
    """Per row: label, probability, whether it is the answer."""
    match answer.get("type"):
        case "noul":
            yes = answer["noul"]
            return [("yes", yes, yes >= 0.5), ("no", 1 - yes, yes < 0.5)]
        case "choice":
            return [(_text(option), p, option == answer["choice"]) for option, p in _likeliest(answer["probabilities"])]
        case "score":
            top = max(answer["probabilities"].values(), default=0.0)
            levels = answer["probabilities"].items()
            return [(f"{level} {_text(answer['legend'].get(level, ''))}", p, p == top) for level, p in levels]
        case _:
            return []


def _likeliest(probabilities: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(probabilities.items(), key=lambda item: -item[1])[:SHOWN_OPTIONS]


def _hidden(answer: Mapping[str, Any]) -> list[float]:
    if answer.get("type") != "choice":
        return []
    return sorted(answer["probabilities"].values(), reverse=True)[SHOWN_OPTIONS:]


def _bar(probability: float, *, blocks: bool) -> str:
    eighths = round(max(0.0, min(1.0, probability)) * BAR_WIDTH * 8)
    whole, part = divmod(eighths, 8)
    full, parts = ("█", EIGHTHS) if blocks else ("#", ASCII_EIGHTHS)
    return (full * whole + parts[part] if part else full * whole).rstrip()


def _text(value: Any) -> str:
    """In one line, and without the control characters that steer a terminal."""
    return CONTROLS.sub(" ", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _foot(answered: Answered, between: str) -> str:
    usage = answered.body.get("usage") or {}
    parts = [_text(answered.body.get("model", ""))]
    if usage.get("input_tokens") is not None:
        parts.append(f"{usage['input_tokens']} tokens in")
    if answered.milliseconds is not None:
        parts.append(f"{answered.milliseconds:.0f} ms")
    if answered.fingerprint:
        parts.append(_text(answered.fingerprint))
    return between.join(parts)
