"""Small fixtures made up for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openjev_compat.fixture import Fixture, QuestionType, Request

QUESTIONS: Mapping[str, dict[str, Any]] = {
    "noul": {"type": "noul", "instructions": "Is it late?"},
    "choice": {"type": "choice", "instructions": "Which?", "criteria": {"a": None, "b": "second", "c": None}},
    "score": {"type": "score", "instructions": "How much?", "criteria": ["none", "some", "all"]},
}


def noul(p: float) -> dict[str, Any]:
    return {"type": "noul", "noul": p}


def choice(a: float, b: float, c: float) -> dict[str, Any]:
    shares = {"a": a, "b": b, "c": c}
    return {"type": "choice", "choice": max(shares, key=lambda name: shares[name]), "probabilities": shares}


def score(*shares: float) -> dict[str, Any]:
    return {
        "type": "score",
        "score": sum(level * share for level, share in enumerate(shares)),
        "probabilities": {str(level): share for level, share in enumerate(shares)},
    }


def fixture(name: str, answer: Mapping[str, Any], **changes: Any) -> Fixture:
    """A fixture of workflow `made/one`, its own case unless told otherwise, with the question of its type."""
    type_: QuestionType = answer["type"]
    values: dict[str, Any] = {
        "id": f"made/one/{name}",
        "source": "made up",
        "licence": "ours",
        "workflow": "made/one",
        "case": f"made/one/{name}",
        "model": "made",
        "recorded_at": "2026-12-02",
        "type": type_,
        "request": Request(state=f"state of {name}", question=QUESTIONS[type_]),
        "answer": answer,
        "reference": None,
    }
    return Fixture(**(values | changes))
