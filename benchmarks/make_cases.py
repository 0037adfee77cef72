"""Case files of the public evaluation pages' shape, with the ids and recorded answers of the 408 public questions and
texts of our own: to run `openjev reproduce-seed` and `openjev ablate` end to end where the public texts are not.

    python benchmarks/make_cases.py OUT_DIR [--scale 0.02] [--tokenizer DIR]

What a model answers to these texts means nothing. Their lengths are like those of the recorded runs: 46 nodes of one
document each, from a few hundred to 18,000 tokens, so that the grouped canvases read about 300,000 prompt tokens.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "fixtures" / "jev" / "public_evals.jsonl"
SEED = ROOT / "fixtures" / "seed" / "public_evals_1step.jsonl"

# Prompt tokens of the 56 grouped canvases of the recorded runs, from its 12 batches sorted by length: how many, and
# the mean of each batch. The 16 longest are taken to be those of the five invoice documents, 4 + 4 + 4 + 2 + 2, with
# questions of 250 tokens each; the 40 shorter ones and one more to be one node each.
SHORTER = (*[377] * 8, *[619] * 8, *[1343] * 8, *[2347] * 8, *[3316] * 9)
INVOICES = {"ap_00149": 2_700, "ap_00074": 10_900, "ap_00198": 14_400, "ap_00246": 15_400, "ap_00225": 17_800}
INVOICE_QUESTION_TOKENS = 250
QUESTION_TOKENS = 70
CHARACTERS_PER_TOKEN = 4.3

WHO = ("The customer", "The supplier", "An agent", "The night shift", "A colleague", "The auditor", "The depot")
DID = ("reported", "confirmed", "disputed", "postponed", "approved", "forgot", "measured", "returned", "paid for")
WHAT = ("the second delivery", "a missing part", "invoice line four", "the login from abroad", "the refund", "a permit")
WHEN = ("on Monday", "before noon", "in the third week", "after two calls", "without notice", "as agreed", "twice")
WHY = ("because the form was incomplete", "although nobody had asked", "and asked for a receipt", "to close the case")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the recorded document lengths")
    parser.add_argument("--tokenizer", type=Path, help="checkpoint directory to measure lengths with")
    arguments = parser.parse_args()
    measure = _counter(arguments.tokenizer)
    rows = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    seed = {row["id"]: row["answer"] for row in map(json.loads, SEED.read_text(encoding="utf-8").splitlines())}
    nodes = _nodes(rows)
    lengths = _lengths(nodes, arguments.scale)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for workflow in dict.fromkeys(workflow for workflow, _, _ in nodes):
        mine = {key: members for key, members in nodes.items() if key[0] == workflow}
        book = _book(mine, lengths, seed, measure, arguments.scale)
        path = arguments.out / f"{workflow.replace('_', '-')}-cases.js"
        path.write_text(f"showCases({json.dumps(book)});\n", encoding="utf-8")
        print(f"{sum(map(len, mine.values())):4d} questions in {len(mine):2d} nodes: {path}")


Node = tuple[str, str, str]
"""Workflow, case, node."""


def _nodes(rows: Sequence[dict[str, Any]]) -> dict[Node, list[dict[str, Any]]]:
    nodes: dict[Node, list[dict[str, Any]]] = {}
    for row in rows:
        workflow, rest = row["case"].split("/", 1)
        nodes.setdefault((workflow, rest, row["node"]), []).append(row)
    return nodes


def _lengths(nodes: dict[Node, list[dict[str, Any]]], scale: float) -> dict[Node, int]:
    """Tokens of each node's document: what its questions leave of the recorded prompt."""
    wanted = {}
    others = sorted((key for key in nodes if key[1] not in INVOICES), key=lambda key: (len(nodes[key]), key))
    for key, tokens in zip(others, SHORTER, strict=True):
        wanted[key] = tokens - QUESTION_TOKENS * len(nodes[key])
    for key in nodes:
        if key[1] in INVOICES:
            wanted[key] = INVOICES[key[1]]
    return {key: max(int(scale * tokens), 12) for key, tokens in wanted.items()}


def _book(
    nodes: dict[Node, list[dict[str, Any]]],
    lengths: dict[Node, int],
    seed: dict[str, Any],
    measure: Callable[[str], float],
    scale: float,
) -> dict[str, Any]:
    documents: list[Any] = []
    questions: list[Any] = []
    cases: dict[str, Any] = {}
    for (workflow, case, node), rows in nodes.items():
        documents.append(_document(f"{workflow}/{case}/{node}", lengths[workflow, case, node], measure))
        entry = cases.setdefault(case, {"models": {}, "reference_answers": {}})
        run = entry["models"].setdefault("typesafe", {"model": rows[0]["model"].partition(":")[2], "nodes": {}})
        asked = {}
        for row in rows:
            qid = row["id"].rpartition("/")[2]
            asked[qid] = len(questions)
            question = _question(row, seed[row["id"]], qid)
            if case in INVOICES:
                _lengthen(question, row["id"], scale * INVOICE_QUESTION_TOKENS, measure)
            questions.append(question)
            if row["reference"] is not None:
                references = entry["reference_answers"].setdefault(node, {})
                references[qid] = {"sets": [{"probabilities": row["reference"]}]}
        answers = {
            row["id"].rpartition("/")[2]: {name: value for name, value in row["answer"].items() if name != "type"}
            for row in rows
        }
        run["nodes"][node] = {"ran": True, "doc": len(documents) - 1, "questions": asked, "answers": answers}
    return {"eval": {"documents": documents, "questions": questions, "cases": cases}}


def _document(name: str, tokens: int, measure: Callable[[str], float]) -> dict[str, Any]:
    rng = random.Random(name)
    entries: list[str] = []
    length = 0.0
    while length < tokens:
        sentences = [_sentence(rng) for _ in range(rng.randint(1, 4))]
        entries.append(f"{rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}. {' '.join(sentences)}")
        length += measure(entries[-1])
    return {"record": name.rpartition("/")[2], "entries": entries}


def _sentence(rng: random.Random) -> str:
    return " ".join((rng.choice(WHO), rng.choice(DID), rng.choice(WHAT), rng.choice(WHEN), rng.choice(WHY))) + "."


def _lengthen(question: dict[str, Any], name: str, tokens: float, measure: Callable[[str], float]) -> None:
    """Adds remarks to the instructions until the question has so many tokens."""
    rng = random.Random(name)
    missing = tokens - measure(json.dumps(question))
    while missing > 0:
        remark = f" Consider this alike: {_sentence(rng)}"
        question["instructions"] += remark
        missing -= measure(remark)


def _question(row: dict[str, Any], seed: dict[str, Any], qid: str) -> dict[str, Any]:
    subject = qid.replace("_", " ")
    if row["type"] == "noul":
        return {
            "type": "noul",
            "instructions": f"Going by the entries of the record: does '{subject}' hold?",
            "criteria": {"true": f"An entry says or implies it: {subject}.", "false": "No entry does."},
        }
    shares = row["answer"]["probabilities"]
    if row["type"] == "score":
        levels = [f"Level {level} of {len(shares) - 1} for {subject}" for level in range(len(shares))]
        return {"type": "score", "instructions": f"How much {subject} do the entries show?", "criteria": levels}
    names = sorted({*shares, *(row["reference"] or {}), seed["choice"]})
    criteria = {name: f"What the entries say fits '{name.replace('_', ' ')}' best." for name in names}
    return {"type": "choice", "instructions": f"Which {subject} do the entries point to?", "criteria": criteria}


def _counter(tokenizer: Path | None) -> Callable[[str], float]:
    if tokenizer is None:
        return lambda text: len(text) / CHARACTERS_PER_TOKEN
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    return lambda text: len(loaded.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    main()
