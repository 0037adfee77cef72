"""Import a `<workflow>-cases.js` file of the public evaluation pages, which the user downloads, as fixtures.

The file is one call around a JSON object; under `eval` (or at the top) it holds `documents`, `questions` and `cases`.
The result keeps the texts, so it stays with whoever downloaded them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .fixture import Fixture, Request
from .store import FixtureError, checked

__all__ = ["consensus", "import_cases", "parse_cases"]

_SUFFIX = "-cases"
_KEYS = ("documents", "questions", "cases")
_SOURCE = "public evaluation pages of Jev"
_LICENCE = "as downloaded by the user; not for redistribution"


def parse_cases(text: str, *, where: str) -> dict[str, Any]:
    """The object with `documents`, `questions` and `cases`. Raises FixtureError when the text holds none."""
    decoder = json.JSONDecoder()
    problem = "there is none"
    start = text.find("{")
    while start >= 0:  # a comment before the call may hold braces too
        try:
            found, end = decoder.raw_decode(text, start)
        except RecursionError:
            problem = "nested too deeply"
            break
        except ValueError as error:
            problem, end = str(error), start + 1
        else:
            book: dict[str, Any] = found["eval"] if isinstance(found.get("eval"), dict) else found
            missing = [key for key in _KEYS if key not in book]
            if not missing:
                return book
            problem = f"it has no {', '.join(missing)}"
        start = text.find("{", end)
    raise FixtureError(f"{where}: no JSON object with {', '.join(_KEYS)} inside: {problem}")


def import_cases(path: Path, *, recorded_at: str) -> dict[str, list[Fixture]]:
    """The fixtures of every model in the file, by model. Questions of one node share its name as `node`.

    Raises FixtureError, naming the place, where the file has another shape.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FixtureError(f"{path}: not UTF-8: {error.reason}") from None
    book = parse_cases(text, where=str(path))
    workflow = path.stem.removesuffix(_SUFFIX).replace("-", "_")
    models: dict[str, list[Fixture]] = {}
    place = "cases"
    try:
        for case_id, case in _items(book["cases"]):
            place = f"case {case_id}"
            references = case.get("reference_answers") or {}
            for key, run in _items(case["models"]):
                model = f"{key}:{run['model']}" if run.get("model") else key
                place = f"case {case_id}, model {model}"
                fixtures = _fixtures(book, workflow, case_id, model, run["nodes"], references, recorded_at)
                models.setdefault(model, []).extend(map(checked, fixtures))
        for model, fixtures_ in models.items():
            place = f"model {model}"
            twice = [id_ for id_, count in Counter(fixture.id for fixture in fixtures_).items() if count > 1]
            if twice:
                raise FixtureError(f"{place}: {twice[0]} is there twice")
    except FixtureError as error:
        raise FixtureError(f"{path}: {error}") from None
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise FixtureError(f"{path}: {place}: unexpected shape ({error!r})") from None
    return models


def consensus(sets: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean over the reference sets, each a distribution or a single value (null: left out)."""
    answered = [given for entry in sets if (given := _distribution(entry))]
    shares: dict[str, float] = {}
    for given in answered:
        for label, share in given.items():
            shares[label] = shares.get(label, 0.0) + share / len(answered)
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
            if not isinstance(index, str) and index < 0:
                raise IndexError(f"question {index}")
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
                reference=consensus(sets) or None,
            )


def _items(values: Any) -> list[tuple[str, Any]]:
    """Entries of an object, or of a list under their numbers."""
    if isinstance(values, Mapping):
        return [(str(key), value) for key, value in values.items()]
    return [(str(number), value) for number, value in enumerate(values)]


def _distribution(entry: Mapping[str, Any]) -> Mapping[str, float]:
    given: Mapping[str, float] = entry.get("probabilities") or {}
    if given or entry["value"] is None:
        return given
    return {_label(entry["value"]): 1.0}


def _label(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
