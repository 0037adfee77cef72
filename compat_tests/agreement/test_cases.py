"""The importer, on a case file of the public pages' shape with texts of our own."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from openjev_compat.cases import consensus, import_cases
from openjev_compat.decision import reference_label
from openjev_compat.metrics import Thresholds
from openjev_compat.report import build_report
from openjev_compat.store import FixtureError, load_fixtures, write_fixtures

QUESTIONS = [
    {"type": "noul", "instructions": "Is the parcel late?", "criteria": {"true": "late", "false": "in time"}},
    {"type": "choice", "instructions": "Who pays?", "criteria": {"buyer": "buys", "seller": "sells"}},
    {"type": "score", "instructions": "How angry?", "criteria": ["calm", "cross", "furious"]},
]
ANSWERS: dict[str, Any] = {
    "late": {"noul": 0.8},
    "payer": {"choice": "seller", "confidence": 0.4, "probabilities": {"buyer": 0.3, "seller": 0.7}},
    "anger": {"score": 1.2, "confidence": 0.7, "probabilities": {"0": 0.0, "1": 0.8, "2": 0.2}},
}


def book() -> dict[str, Any]:
    answers = deepcopy(ANSWERS)
    node = {"ran": True, "doc": 1, "questions": {"late": 0, "payer": 1, "anger": 2}, "answers": answers}
    other = {**ANSWERS, "late": {"noul": 0.3}}
    return {
        "eval": {
            "documents": ["unused", {"message": "Where is my parcel? (It is {late}.)"}],
            "questions": QUESTIONS,
            "cases": {
                "parcel-1": {
                    "models": {
                        "typesafe": {"model": "v1", "nodes": [{"node": "triage", **node}, {"node": "x", "ran": False}]},
                        "other": {"nodes": [{"node": "triage", **node, "answers": other}]},
                    },
                    "reference_answers": {
                        "triage": {
                            "late": {"sets": [{"value": True}, {"probabilities": {"true": 0.5, "false": 0.5}}]},
                            "payer": {"sets": [{"value": "buyer"}, {"value": "seller"}]},
                        }
                    },
                }
            },
        }
    }


def written(directory: Path, content: Any) -> Path:
    path = directory / "parcel-service-cases.js"
    path.write_text(f"window.show_cases({json.dumps(content)});\n", encoding="utf-8")
    return path


def test_every_answered_question_becomes_a_fixture(tmp_path: Path) -> None:
    models = import_cases(written(tmp_path, book()), recorded_at="2026-12-02")
    assert set(models) == {"typesafe:v1", "other"}
    late, payer, anger = models["typesafe:v1"]
    assert late.id == "public-evals/parcel_service/parcel-1/triage/late"
    assert late.node == "triage"
    assert late.answer == {"type": "noul", "noul": 0.8}
    assert late.request is not None
    assert late.request.state == {"message": "Where is my parcel? (It is {late}.)"}
    assert reference_label(late.reference) == "true"
    assert payer.reference is not None
    assert reference_label(payer.reference) is None  # tied
    assert anger.reference is None


def test_the_result_is_valid_and_two_models_can_be_compared(tmp_path: Path) -> None:
    models = import_cases(written(tmp_path, book()), recorded_at="2026-12-02")
    for name in models:
        write_fixtures(tmp_path / f"{name}.jsonl", models[name])
    left, right = load_fixtures([tmp_path / "other.jsonl"]), load_fixtures([tmp_path / "typesafe:v1.jsonl"])
    report = build_report(left, right, names=("other", "jev"), thresholds=Thresholds())
    agreement = report.overall.estimate("agreement")
    assert agreement is not None
    assert (agreement.hits, agreement.n) == (2, 3)
    assert report.excluded["tied reference"] == 1
    assert report.excluded["without a reference"] == 1


def test_nodes_by_name_and_a_bare_object_are_read_too(tmp_path: Path) -> None:
    content = book()["eval"]
    run = content["cases"]["parcel-1"]["models"]["typesafe"]
    run["nodes"] = {node.pop("node"): node for node in run["nodes"]}
    models = import_cases(written(tmp_path, content), recorded_at="2026-12-02")
    assert [fixture.node for fixture in models["typesafe:v1"]] == ["triage"] * 3


def test_consensus_is_the_mean_over_the_sets() -> None:
    sets: list[dict[str, Any]] = [{"value": 2}, {"probabilities": {"2": 0.5, "1": 0.5}}, {"probabilities": {"1": 1.0}}]
    assert consensus(sets) == pytest.approx({"2": 0.5, "1": 0.5})


def test_a_reference_of_null_is_none() -> None:
    assert consensus([{"value": None}, {"value": True}]) == {"true": 1.0}
    assert consensus([{"value": None}]) == {}


@pytest.mark.parametrize("text", ["no object", "call({", 'call({"eval": {"documents": []}})'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other-cases.js"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FixtureError, match="object"):
        import_cases(path, recorded_at="2026-12-02")


def test_another_shape_is_named(tmp_path: Path) -> None:
    content = book()
    del content["eval"]["cases"]["parcel-1"]["models"]["typesafe"]["nodes"][0]["answers"]["payer"]
    with pytest.raises(FixtureError, match=r"case parcel-1, model typesafe:v1.*payer"):
        import_cases(written(tmp_path, content), recorded_at="2026-12-02")


def _changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    content = book()
    change(content["eval"])
    return content


def _nodes(content: dict[str, Any]) -> Any:
    return content["cases"]["parcel-1"]["models"]["typesafe"]["nodes"]


@pytest.mark.parametrize(
    "content",
    [
        _changed(lambda b: b.update(cases=None)),
        _changed(lambda b: b.update(cases=3)),
        _changed(lambda b: b.update(cases={"parcel-1": "text"})),
        _changed(lambda b: b["cases"]["parcel-1"].pop("models")),
        _changed(lambda b: b["cases"]["parcel-1"]["models"].update(typesafe="v1")),
        _changed(lambda b: b["cases"]["parcel-1"].update(reference_answers=["x"])),
        _changed(lambda b: _nodes(b)[0].update(questions=["late"])),
        _changed(lambda b: _nodes(b)[0]["questions"].update(late=-1)),
        _changed(lambda b: _nodes(b)[0].update(answers={**ANSWERS, "late": {"noul": None}})),
        _changed(lambda b: _nodes(b)[0].update(answers={**ANSWERS, "late": {"noul": float("nan")}})),
        _changed(lambda b: _nodes(b)[0].update(answers={**ANSWERS, "late": {"noul": 1.7}})),
        _changed(lambda b: _nodes(b).append(_nodes(b)[0])),
    ],
)
def test_what_agree_would_not_read_is_refused_with_the_file(tmp_path: Path, content: dict[str, Any]) -> None:
    path = written(tmp_path, content)
    with pytest.raises(FixtureError, match=path.name) as caught:
        import_cases(path, recorded_at="2026-12-02")
    assert "\n" not in str(caught.value)


def test_deep_nesting_and_other_encodings_are_refused(tmp_path: Path) -> None:
    deep = tmp_path / "deep-cases.js"
    deep.write_text("load(" + '{"a":' * 100_000, encoding="utf-8")
    with pytest.raises(FixtureError, match="deep-cases"):
        import_cases(deep, recorded_at="2026-12-02")
    latin = tmp_path / "latin-cases.js"
    latin.write_bytes("load({'é'})".encode("latin-1"))
    with pytest.raises(FixtureError, match=r"latin-cases.*UTF-8"):
        import_cases(latin, recorded_at="2026-12-02")


def test_braces_before_the_call_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "parcels-cases.js"
    path.write_text(f"/* {{made}} */ window.x = window.x || {{}}; load({json.dumps(book())});", encoding="utf-8")
    assert sum(map(len, import_cases(path, recorded_at="2026-12-02").values())) == 6
