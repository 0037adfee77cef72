"""What every answer of a System One host must look like: the published JSON Schemas, and key order, which they lack."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

__all__ = ["assert_answers", "assert_schema"]

SCHEMAS = Path(__file__).resolve().parent.parent / "fixtures" / "schema"
KEYS = {
    "noul": ["type", "noul"],
    "choice": ["type", "choice", "confidence", "probabilities"],
    "score": ["type", "score", "confidence", "legend", "probabilities"],
}


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.schema.json").read_text()))


def assert_schema(name: str, body: Any) -> None:
    """`name`: request, response, error or models."""
    problems = [f"{error.json_path}: {error.message}" for error in _validator(name).iter_errors(body)]
    assert not problems, problems


def assert_answers(request: dict[str, Any], body: dict[str, Any]) -> None:
    """A 200 body that answers `request`: schema, key order, options, legend, and sums of two-decimal probabilities."""
    assert_schema("response", body)
    assert list(body) == ["model", "answers", "usage"]
    assert list(body["usage"]) == ["input_tokens", "output_tokens"]
    assert list(body["answers"]) == list(request["questions"])
    for name, question in request["questions"].items():
        answer = body["answers"][name]
        assert list(answer) == KEYS[question["type"]], name
        assert answer["type"] == question["type"], name
        assert all(isinstance(value, float) for value in _numbers(answer)), name
        if question["type"] == "choice":
            assert list(answer["probabilities"]) == list(question["criteria"]), name
            assert answer["probabilities"][answer["choice"]] == max(answer["probabilities"].values()), name
        if question["type"] == "score":
            levels = {str(level): text for level, text in enumerate(question["criteria"])}
            assert list(answer["legend"].items()) == list(levels.items()), name
            assert list(answer["probabilities"]) == list(levels), name
        if question["type"] != "noul":
            assert math.isclose(math.fsum(answer["probabilities"].values()), 1.0, abs_tol=1e-9), name


def _numbers(answer: dict[str, Any]) -> list[Any]:
    return [answer[key] for key in ("noul", "score", "confidence") if key in answer] + list(
        answer.get("probabilities", {}).values()
    )
