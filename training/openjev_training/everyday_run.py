"""What a checkpoint answers to the everyday cases, with the probabilities that its server would give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openjev_server.bundle import load_bundle
from openjev_server.questions import Choice, Noul, Question, Text

from .evaluate import Served
from .everyday import CASES

__all__ = ["answer_cases", "as_markdown", "asked"]

LAYOUT, STEPS = "isolated", 2
_TYPES = {"Choice": "choice", "Noul": "yes/no", "Score": "score"}


def asked(question: Question) -> dict[str, Any]:
    """Type, instructions and names of the answers, in the order of the probabilities."""
    kind = _TYPES[type(question).__name__]
    match question:
        case Choice(options=options):
            names = [option.name for option in options]
        case Noul():
            names = ["yes", "no"]
        case _:
            names = [_text(level) for level in question.levels]
    return {"type": kind, "question": _text(question.instructions or ""), "answers": names}


def answer_cases(checkpoint: Path) -> dict[str, Any]:
    """Every case at once through the server's compiler, engine, readout and calibration. Raises EngineError."""
    served = Served(checkpoint)
    calibrations = load_bundle(checkpoint).calibrations(served.info)
    calibration = calibrations.choose(LAYOUT, STEPS)
    found = served.ask([(state, [q for q, _ in questions]) for state, questions in CASES], steps=STEPS)
    cases = []
    for (state, questions), answers in zip(CASES, found, strict=True):
        made = []
        for (question, right), read in zip(questions, answers, strict=True):
            given = {"as read": read, "calibrated": calibration.apply(question, read)}
            rounded = {name: [round(float(p), 3) for p in values] for name, values in given.items()}
            made.append({**asked(question), "right": right, **rounded})
        cases.append({"state": state, "questions": made})
    return {
        "weights": served.info.weights_hash,
        "calibration": calibration.hash,
        "layout": LAYOUT,
        "steps": STEPS,
        "cases": cases,
    }


def as_markdown(kept: Mapping[str, Any]) -> str:
    """A table with a line a question; the text of a case stands in its first line."""
    lines = ["| text | question | answers: probability | right | |", "|---|---|---|---|---|"]
    verdicts: list[tuple[str, bool]] = []
    for case in kept["cases"]:
        text = case["state"] if isinstance(case["state"], str) else json.dumps(case["state"])
        for question in case["questions"]:
            top = _top(question["calibrated"])
            verdicts.append((question["type"], top == question["right"]))
            answers = ", ".join(
                f"**{name} {p:.2f}**" if place == top else f"{name} {p:.2f}"
                for place, (name, p) in enumerate(zip(question["answers"], question["calibrated"], strict=True))
            )
            read = max(question["as read"])
            cells = [text, f"{question['question']} ({question['type']})", f"{answers}; as read {read:.2f}"]
            cells += [question["answers"][question["right"]], "" if verdicts[-1][1] else "**wrong**"]
            lines.append("| " + " | ".join(_cell(cell) for cell in cells) + " |")
            text = ""
    counts = []
    for kind in _TYPES.values():
        of_kind = [ok for name, ok in verdicts if name == kind]
        counts.append(f"{sum(of_kind)} of {len(of_kind)} {kind}")
    right = sum(ok for _, ok in verdicts)
    head = (
        f"{len(kept['cases'])} texts, {len(verdicts)} questions, {right} answered right ({', '.join(counts)}). "
        f"Weights `{kept['weights']}`, calibration `{kept['calibration']}`, layout {kept['layout']}, "
        f"{kept['steps']} steps."
    )
    return "\n".join([head, "", *lines])


def _top(probabilities: Sequence[float]) -> int:
    return max(range(len(probabilities)), key=probabilities.__getitem__)


def _text(value: Text) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
