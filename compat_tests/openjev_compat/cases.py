"""Import a `<workflow>-cases.js` file of the public evaluation pages, which the user downloads, as fixtures.

The file is one call around a JSON object; under `eval` (or at the top) it holds `documents`, `questions` and `cases`.
The result keeps the texts, so it stays with whoever downloaded them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .fixture import Fixture, Request
from .store import FixtureError

__all__ = ["consensus", "import_cases", "parse_cases"]

_SUFFIX = "-cases"
_SOURCE = "public evaluation pages of Jev"
_LICENCE = "as downloaded by the user; not for redistribution"


def parse_cases(text: str, *, where: str) -> dict[str, Any]:
    """The object with `documents`, `questions` and `cases`. Raises FixtureError when the text holds none."""
    start = text.find("{")
    try:
        book, _ = json.JSONDecoder().raw_decode(text, start) if start >= 0 else (None, 0)
    except ValueError as error:
        raise FixtureError(f"{where}: no JSON object inside: {error}") from None
    if isinstance(book, dict) and isinstance(book.get("eval"), dict):
        book = book["eval"]
    missing = [key for key in ("documents", "questions", "cases") if not isinstance(book, dict) or key not in book]
    if missing:
        raise FixtureError(f"{where}: the object has no {', '.join(missing)}")
    assert isinstance(book, dict)
    return book


def import_cases(path: Path, *, recorded_at: str) -> dict[str, list[Fixture]]:
    """The fixtures of every model in the file, by model. Questions of one node share its name as `node`.

    Raises FixtureError, naming the place, where the file has another shape.
    """
    book = parse_cases(path.read_text(encoding="utf-8"), where=str(path))
    workflow = path.stem.removesuffix(_SUFFIX).replace("-", "_")
    models: dict[str, list[Fixture]] = {}
    for case_id, case in _items(book["cases"]):
        for key, run in _items(case["models"]):
            model = f"{key}:{run['model']}" if run.get("model") else key
            references = case.get("reference_answers") or {}
            try:
                fixtures = list(_fixtures(book, workflow, case_id, model, run["nodes"], references, recorded_at))
            except (KeyError, IndexError, TypeError) as error:
                raise FixtureError(f"{path}: case {case_id}, model {model}: unexpected shape ({error!r})") from None
            models.setdefault(model, []).extend(fixtures)
    return models


def consensus(sets: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean over the reference sets, each a distribution or a single value."""
    shares: dict[str, float] = {}
    for entry in sets:
        given = entry.get("probabilities") or {_label(entry["value"]): 1.0}
        for label, share in given.items():
            shares[label] = shares.get(label, 0.0) + share / len(sets)
    return {label: min(1.0, share) for label, share in shares.items()}


def _fixtures(
    book: Mapping[str, Any],
    workflow: str,
    case_id: str,
    model: str,
    nodes: Any,
    references: Mapping[str, Any],
    recorded_at: str,
) -> Iterator[Fixture]:
    for key, node in _items(nodes):
        if not node["ran"]:
            continue
        name = str(node.get("node", key))
        state = book["documents"][node["doc"]]
        for qid, index in node["questions"].items():
            question = book["questions"][index]
            sets = ((references.get(name) or {}).get(qid) or {}).get("sets") or []
            yield Fixture(
                id=f"public-evals/{workflow}/{case_id}/{name}/{qid}",
                source=_SOURCE,
                licence=_LICENCE,
                workflow=f"public-evals/{workflow}",
                case=f"{workflow}/{case_id}",
                node=name,
                model=model,
                recorded_at=recorded_at,
                type=question["type"],
                request=Request(state=state, question=question),
                answer={"type": question["type"], **node["answers"][qid]},
                reference=consensus(sets) if sets else None,
            )


def _items(values: Any) -> list[tuple[str, Any]]:
    """Entries of an object, or of a list under their numbers."""
    if isinstance(values, Mapping):
        return [(str(key), value) for key, value in values.items()]
    return [(str(number), value) for number, value in enumerate(values)]


def _label(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
