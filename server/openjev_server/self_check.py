"""A fixed request whose answers show whether this machine computes what the checkpoint means.

A checkpoint directory may hold `self_check.json`, the probabilities that were right when it was made, as
`openjev doctor --record` writes it. Without that file the answers are only compared with themselves.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openjev_server.canvas.compile import CompiledRequest, Compiler, Layout
from openjev_server.canvas.readout import read_out
from openjev_server.engine.protocol import Engine, EngineResult
from openjev_server.questions import Choice, Noul, Option, Question, Score

__all__ = ["FILE_NAME", "QUESTIONS", "SelfCheck", "record", "run_self_check"]

FILE_NAME = "self_check.json"
STATE = "I was charged twice for my October invoice and nobody answers. Refund me today or I will cancel."
QUESTIONS: tuple[Question, ...] = (
    Choice(
        "topic",
        "Which topic?",
        (
            Option("billing", "Invoices, payments and refunds"),
            Option("travel", "Flights and hotels"),
            Option("sport", "Matches and players"),
        ),
    ),
    Noul("invoice", "Is this about an invoice?"),
    Score("anger", "How angry is the customer?", ("calm", "annoyed", "furious")),
)
TOLERANCE = {"float32": 0.01, "bfloat16": 0.08, "float8": 0.15, "int8": 0.15, "int4": 0.3}
"""Largest difference of a probability, by dtype: bfloat16 keeps 8 bits of every intermediate value, and quantised
weights are other weights than the reference was recorded with."""

Answers = tuple[tuple[float, ...], ...]
"""Per question the probability of every answer."""


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What came out."""

    problems: tuple[str, ...]
    """Empty when all is well."""
    compared: bool
    """Whether there was a reference to compare with."""
    difference: float
    """The largest difference of a probability, from the reference or else between alone and in a batch."""
    tolerance: float


def run_self_check(engine: Engine, compiler: Compiler, directory: Path) -> SelfCheck:
    """Asks the fixed questions, all at once and each alone, and compares.

    Raises:
        EngineError: the engine cannot evaluate them, for instance because its logits are not finite.
        ValueError: `self_check.json` is not what `record` writes.
    """
    tolerance = TOLERANCE[engine.info.dtype]
    answers, alone = _answers(engine, compiler)
    reference = _reference(directory, compiler.template.id)
    problems = _differences(answers, alone, tolerance, "alone and in a batch")
    if reference is not None:
        problems += _differences(answers, reference, tolerance, "here and where the checkpoint was made")
    return SelfCheck(tuple(problems), reference is not None, _largest(answers, reference or alone), tolerance)


def record(engine: Engine, compiler: Compiler, directory: Path) -> Path:
    """Writes this machine's answers as the reference. Raises as `run_self_check`, and OSError."""
    answers, _ = _answers(engine, compiler)
    path = directory / FILE_NAME
    named = {question.id: [round(p, 6) for p in answer] for question, answer in zip(QUESTIONS, answers, strict=True)}
    path.write_text(json.dumps({"template": compiler.template.id, "probabilities": named}, indent=2) + "\n")
    return path


def _answers(engine: Engine, compiler: Compiler) -> tuple[Answers, Answers]:
    """All questions in one request, and each in a request of its own."""
    together = _compile(compiler, QUESTIONS)
    each = [_compile(compiler, [question]) for question in QUESTIONS]
    alone = tuple(answer for compiled in each for answer in _run(engine, compiled))
    return _run(engine, together), alone


def _compile(compiler: Compiler, questions: Sequence[Question]) -> CompiledRequest:
    return compiler.compile(STATE, questions, layout=Layout.ISOLATED, steps=2, replicas=1)


def _run(engine: Engine, compiled: CompiledRequest) -> Answers:
    (result,) = engine.run([compiled.request])
    if not isinstance(result, EngineResult):
        raise result
    return tuple(tuple(answer.tolist()) for answer in read_out(compiled, result))


def _reference(directory: Path, template: str) -> Answers | None:
    """The recorded answers; None where there are none, or none for this template."""
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if recorded["template"] != template:
            return None
        named = recorded["probabilities"]
        return tuple(tuple(map(float, named[question.id])) for question in QUESTIONS)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{FILE_NAME} cannot be read: {error!r}") from error


def _differences(answers: Answers, others: Answers, tolerance: float, where: str) -> list[str]:
    problems = []
    for question, answer, other in zip(QUESTIONS, answers, others, strict=True):
        largest = _largest([answer], [other])
        if largest > tolerance:
            problems.append(f"{question.id}: probabilities differ by {largest:.3f} {where}")
    return problems


def _largest(answers: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    pairs = zip(answers, others, strict=True)
    return max(abs(p - q) for answer, other in pairs for p, q in zip(answer, other, strict=True))
