"""What to ask a server: fixtures or plain request bodies, grouped into the requests that carry them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .fixture import Fixture
from .store import FixtureError, parse_json, read_lines

__all__ = ["Ask", "asks_of", "read_requests"]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: a state and its questions in wire form, by fixture id."""

    workflow: str
    case: str
    node: str | None
    licence: str
    state: Any
    questions: Mapping[str, Mapping[str, Any]]


def asks_of(fixtures: Iterable[Fixture]) -> list[Ask]:
    """The requests of the fixtures that kept their text; questions of one node on one state travel together."""
    groups: dict[tuple[str, str | None, str], list[Fixture]] = {}
    for fixture in fixtures:
        if fixture.request is not None:
            state = json.dumps(fixture.request.state, sort_keys=True)
            groups.setdefault((fixture.case, fixture.node, state), []).append(fixture)
    asks = []
    for members in groups.values():
        first = members[0]
        assert first.request is not None
        asks.append(
            Ask(
                workflow=first.workflow,
                case=first.case,
                node=first.node,
                licence=first.licence,
                state=first.request.state,
                questions={member.id: member.request.question for member in members if member.request is not None},
            )
        )
    return asks


def read_requests(path: Path, *, workflow: str, licence: str) -> list[Ask]:
    """Request bodies (`state`, `questions`) from a JSON array, or one JSON object a line.

    Raises FixtureError for anything else.
    """
    if not path.is_file():
        raise FixtureError(f"{path}: no such file")
    lines = list(read_lines(path))
    if not lines:
        raise FixtureError(f"{path}: holds no line")
    if lines[0][1].lstrip().startswith("["):
        bodies = parse_json("".join(text for _, text in lines), where=str(path))
    else:
        bodies = [parse_json(text, where=where) for where, text in lines]
    asks: list[Ask] = []
    named: set[str] = set()
    for number, body in enumerate(bodies, start=1):
        questions = body.get("questions") if isinstance(body, dict) else None
        if not isinstance(questions, dict) or not questions or "state" not in body:
            raise FixtureError(f"{path}: request {number}: an object with `state` and `questions` is needed")
        case = f"{workflow}/{body.get('id', number)}"
        asks.append(
            Ask(
                workflow=workflow,
                case=case,
                node=None,
                licence=licence,
                state=body["state"],
                questions={f"{case}/{qid}": question for qid, question in questions.items()},
            )
        )
        twice = named & asks[-1].questions.keys()
        if twice:
            raise FixtureError(f"{path}: request {number}: {min(twice)} names a question of an earlier request too")
        named |= asks[-1].questions.keys()
    return asks
