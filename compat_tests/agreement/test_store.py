"""Fixture files: what is read is what was written, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agreement.made import choice, fixture, noul, score
from openjev_compat.fixture import Usage
from openjev_compat.store import FixtureError, load_fixtures, schema, write_fixtures


def test_written_and_read_again(tmp_path: Path) -> None:
    fixtures = [
        fixture("n", noul(0.5), latency_ms=12.5, usage=Usage(10, 4, 2), steps=2, node="first"),
        fixture("c", choice(0.2, 0.5, 0.3), request=None, options=("a", "b", "c"), run="again"),
        fixture("s", score(0.5, 0.5), reference={"1": 1.0}),
    ]
    assert write_fixtures(tmp_path / "deep" / "one.jsonl", fixtures) == 3
    assert load_fixtures([tmp_path]) == fixtures


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "box"}, "type"),
        ({"answer": {"type": "noul", "noul": 1.5}}, "answer/noul: 1.5 is greater than the maximum of 1"),
        ({"answer": {"type": "noul"}}, "answer: 'noul' is a required property or answer: 'label' is a required"),
        ({"answer": {"type": "box"}}, "answer/type: 'noul' was expected or answer/type: 'choice' was expected or"),
        ({"answer": 3}, "answer: 3 is not of type 'object'"),
        ({"answer": {"type": "choice", "choice": "a", "probabilities": {"a": 2}}}, "answer/probabilities/a: 2 is gr"),
        ({"answer": {"type": "score", "score": 1.0}}, "the answer is a score"),
        ({"recorded_at": "yesterday"}, "recorded_at"),
        ({"reference": {}}, "reference: {} should be non-empty"),
        ({"surprise": 1}, "surprise"),
        ({"request": {"state": None, "question": {"type": "noul"}}}, "request/state: None is not of type"),
    ],
)
def test_a_bad_line_is_named_with_its_place(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    good = fixture("n", noul(0.5)).to_json()
    path = tmp_path / "bad.jsonl"
    path.write_text(json.dumps(good) + "\n" + json.dumps({**good, "id": "other", **change}) + "\n", encoding="utf-8")
    with pytest.raises(FixtureError, match=message) as caught:
        load_fixtures([path])
    assert "bad.jsonl:2" in str(caught.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("place", ['"noul": 0.5', '"latency_ms": 1.5', '"state of n"'])
def test_a_number_that_is_none_is_refused(tmp_path: Path, number: str, place: str) -> None:
    line = fixture("n", noul(0.5), latency_ms=1.5).to_line()
    assert place in line
    changed = f"[{number}]" if ":" not in place else f"{place.partition(':')[0]}: {number}"
    path = tmp_path / "one.jsonl"
    path.write_text(f"\n{line.replace(place, changed)}\n", encoding="utf-8")
    with pytest.raises(FixtureError, match=r"one\.jsonl:2: not JSON: .*no finite number"):
        load_fixtures([path])


def test_not_utf8_and_empty(tmp_path: Path) -> None:
    good = fixture("n", noul(0.5)).to_line().encode()
    path, empty = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    path.write_bytes(good + b"\n" + good.replace(b"state", b"st\xe4te") + b"\n")
    with pytest.raises(FixtureError, match=r"one\.jsonl:2: not UTF-8"):
        load_fixtures([path])
    empty.write_text("\n", encoding="utf-8")
    with pytest.raises(FixtureError, match=r"two\.jsonl: holds no line"):
        load_fixtures([empty])
    path.write_bytes(b"")
    with pytest.raises(FixtureError, match="no file below holds a line"):
        load_fixtures([tmp_path])
    path.write_bytes(good)
    assert len(load_fixtures([tmp_path])) == 1  # an empty file beside others, as an interrupted recording leaves one


def test_nested_too_deeply(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text("[" * 200_000, encoding="utf-8")
    with pytest.raises(FixtureError, match=r"one\.jsonl:1: not JSON"):
        load_fixtures([path])


def test_not_json_missing_and_twice(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(FixtureError, match="not JSON"):
        load_fixtures([path])
    with pytest.raises(FixtureError, match="no such file"):
        load_fixtures([tmp_path / "absent"])
    write_fixtures(path, [fixture("n", noul(0.5)), fixture("n", noul(0.6))])
    with pytest.raises(FixtureError, match="answered before"):
        load_fixtures([path])


def test_the_schema_describes_every_field() -> None:
    assert set(fixture("n", noul(0.5), usage=Usage(1, 1, 1), steps=1, latency_ms=1.0, node="n", run="r").to_json()) <= (
        set(schema()["properties"])
    )
    assert set(schema()["properties"]) == set(fixture("n", noul(0.5)).__dataclass_fields__)
