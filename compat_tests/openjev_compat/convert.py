"""Make `fixtures/jev` and `fixtures/seed` from the recordings that others published.

Run: python -m openjev_compat.convert RECORDED_DIR SEED_RESULTS_DIR FIXTURES_DIR
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .fixture import Fixture, QuestionType, Request, Usage
from .store import write_fixtures

__all__ = ["convert_recorded", "convert_seed", "main"]

# The triage and relevance packs name their score levels; the recordings keep the names in `expect` only.
_LEVELS = {
    "urgency": {"low": 0, "normal": 1, "high": 2, "unknown": 3},
    "support": {"off_topic": 0, "background": 1, "answers": 2, "unknown": 3},
}
_SEED_SOURCE = "github.com/JoshuaSP/open-jev"
_SEED_LICENCE = "numbers and ids only (repository MIT; question texts and documents keep their owners' rights)"
_SEED_MODEL = "google/diffusiongemma-26B-A4B-it"
_JEV_OF_SEED = "typesafe:v13_snowy_elephant"


def convert_recorded(path: Path) -> list[Fixture]:
    """One fixture per recorded answer of a file of `fixtures/recorded`; errors and model lists hold none."""
    book = json.loads(path.read_text(encoding="utf-8"))
    workflow, run = _workflow_of(path.stem)
    fixtures: list[Fixture] = []
    for pair in book["pairs"]:
        answers = pair["response"].get("answers")
        if not answers:
            continue
        request = pair["request"]
        usage = pair["response"].get("usage")
        case = _case_of(path.stem, pair["id"])
        for qid, answer in answers.items():
            shared_request = None
            if request is not None and _may_redistribute(path.stem):
                shared_request = Request(state=request["state"], question=request["questions"][qid])
            fixtures.append(
                Fixture(
                    id=f"{workflow}/{_pair_name(pair['id'])}/{qid}",
                    source=book["source"],
                    licence=book["licence"],
                    workflow=workflow,
                    case=case,
                    node=_pair_name(pair["id"]),
                    model=pair["response"].get("model") or book["model"],
                    recorded_at=book["recorded"].split("/")[0],
                    type=answer["type"],
                    request=shared_request,
                    answer=answer,
                    reference=_expected(pair.get("expect"), qid, answer),
                    run=_run_of(pair["id"], run),
                    latency_ms=pair.get("latency_ms"),
                    usage=None if usage is None else Usage(**usage, questions=len(answers)),
                    options=None if shared_request is not None else _options_of(answer),
                )
            )
    return fixtures


def convert_seed(directory: Path) -> dict[str, list[Fixture]]:
    """The seed's rows as files: its own answers (`seed/...`) and the Jev answers saved beside them (`jev/...`)."""
    files: dict[str, list[Fixture]] = {"jev/public_evals": [], "jev/every_lab": [], "seed/every_lab": []}
    types: dict[str, tuple[QuestionType, tuple[str, ...] | None]] = {}
    for row in _rows(directory / "public_evals_1step.jsonl"):
        answer = {"type": row["type"]} | ({"noul": row["jev"]} if row["type"] == "noul" else row["jev"])
        options = _options_of(answer, row["ref"])
        types[row["id"]] = (row["type"], options)
        files["jev/public_evals"].append(
            _public(row["id"], _JEV_OF_SEED, row["type"], options, answer, row["ref"], "2026-09-16", None, None)
        )
    for stem, run, steps in (("1step", "1-step", 1), ("grouped_1step", "grouped", 1), ("grouped_2step", "grouped", 2)):
        meta = json.loads((directory / f"public_evals_{stem}.meta.json").read_text(encoding="utf-8"))
        files[f"seed/public_evals_{stem}"] = [
            _public(
                row["id"],
                _SEED_MODEL,
                types[row["id"]][0],
                types[row["id"]][1],
                _bare(types[row["id"]][0], row["value"]),
                None,
                meta["recorded_at"],
                run,
                steps,
            )
            for row in _rows(directory / f"public_evals_{stem}.jsonl")
        ]
    recorded_at = json.loads((directory / "every_lab.meta.json").read_text(encoding="utf-8"))["recorded_at"]
    for row in _rows(directory / "every_lab.jsonl"):
        reference = None if row["label"] is None else {str(row["label"]).lower(): 1.0}
        if row["steps"] == 1:
            answer = {"type": "noul", "noul": row["jev_p_true"]}
            files["jev/every_lab"].append(_every(row, _JEV_OF_SEED, answer, reference, recorded_at, None))
        answer = {"type": "noul", "noul": row["p_true_uncalibrated"]}
        files["seed/every_lab"].append(_every(row, _SEED_MODEL, answer, reference, recorded_at, row["steps"]))
    return files


def main(arguments: list[str]) -> None:
    recorded, seed, fixtures = (Path(argument) for argument in arguments)
    made = {f"jev/{path.stem}": convert_recorded(path) for path in sorted(recorded.glob("*.json"))}
    for name, lines in (made | convert_seed(seed)).items():
        path = fixtures / f"{name}.jsonl"
        print(f"{write_fixtures(path, lines):5d} {path}")


def _public(
    id_: str,
    model: str,
    type_: QuestionType,
    options: tuple[str, ...] | None,
    answer: Mapping[str, Any],
    reference: Mapping[str, float] | None,
    recorded_at: str,
    run: str | None,
    steps: int | None,
) -> Fixture:
    workflow, rest = id_.split("/", 1)
    case, node, _ = rest.rsplit("/", 2)
    return Fixture(
        id=f"public-evals/{id_}",
        source=f"{_SEED_SOURCE}, public evaluations",
        licence=_SEED_LICENCE,
        workflow=f"public-evals/{workflow}",
        case=f"{workflow}/{case}",
        node=node,
        model=model,
        recorded_at=recorded_at,
        type=type_,
        request=None,
        answer=answer,
        reference=reference,
        run=run,
        steps=steps,
        options=options,
    )


def _every(
    row: Mapping[str, Any],
    model: str,
    answer: Mapping[str, Any],
    reference: Mapping[str, float] | None,
    recorded_at: str,
    steps: int | None,
) -> Fixture:
    workflow = f"every-lab/{row['experiment']}"
    return Fixture(
        id=f"{workflow}/{row['doc']}/{row['qid']}",
        source=f"{_SEED_SOURCE}, Every's TypeSafe lab",
        licence=_SEED_LICENCE,
        workflow=workflow,
        case=f"{workflow}/{row['doc']}",
        model=model,
        recorded_at=recorded_at,
        type="noul",
        request=None,
        answer=answer,
        reference=reference,
        run=None if steps is None else f"{steps}-step",
        steps=steps,
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _bare(type_: QuestionType, value: Any) -> dict[str, Any]:
    if type_ == "choice":
        return {"type": "choice", "choice": str(value)}
    return {"type": type_, "label": str(value).lower()}


def _options_of(answer: Mapping[str, Any], reference: Mapping[str, float] | None = None) -> tuple[str, ...] | None:
    if answer["type"] == "noul":
        return None
    probabilities = answer.get("probabilities", {})
    return tuple(dict.fromkeys([*probabilities, *(reference or {})])) or None


def _expected(expect: Any, qid: str, answer: Mapping[str, Any]) -> dict[str, float] | None:
    """The recorder's own label as a one-answer reference; None where the label is on another scale."""
    if isinstance(expect, dict):
        expect = expect.get(qid)
    if isinstance(expect, str) and answer["type"] == "score":
        expect = _LEVELS[qid][expect]
    if expect is None or (answer["type"] == "noul") != isinstance(expect, bool):
        return None
    if answer["type"] == "score" and "probabilities" not in answer:
        return None  # 0/1 sentiment against five levels
    return {str(expect).lower() if isinstance(expect, bool) else str(expect): 1.0}


def _workflow_of(stem: str) -> tuple[str, str | None]:
    if stem.startswith("jevassert_"):
        pack, _, run = stem.removeprefix("jevassert_").partition("_predictions")
        return f"jevassert/{pack}", run.removeprefix("-") or None
    return {
        "jev_grep_code_review_openrouter": ("jev-grep/code-review", None),
        "jev_tools_ag_news_vercel": ("jev-tools/ag-news", None),
        "jev_tools_sentiment_vercel": ("jev-tools/sentiment", None),
        "jev_tools_sms_spam_vercel": ("jev-tools/sms-spam", None),
        "jevnav_traces": ("jevnav/traces", None),
        "jevstiller_live_fixtures": ("jevstiller/live", None),
    }[stem]


def _may_redistribute(stem: str) -> bool:
    return stem != "jev_tools_ag_news_vercel"  # AG News is published without a licence


def _pair_name(pair_id: str) -> str:
    """The pair's own name: without the file it came from and without the model version it was asked of."""
    name = pair_id.removesuffix("_jev-1.14.0")
    parts = name.split("/")
    return parts[-1] if "predictions" in pair_id else name


def _run_of(pair_id: str, run: str | None) -> str | None:
    return "jev-1.14.0" if pair_id.endswith("_jev-1.14.0") else run


def _case_of(stem: str, pair_id: str) -> str:
    workflow, _ = _workflow_of(stem)
    name = _pair_name(pair_id)
    if stem.startswith("jev_grep"):
        name = name.split(":")[0]  # the lines of one changed file are one case
    elif stem == "jevnav_traces":
        name = name.split("/")[0]
    return f"{workflow}/{name}"


if __name__ == "__main__":
    main(sys.argv[1:])
