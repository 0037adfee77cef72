"""Shapes of the seed's 408-question run: `python -m benchmarks.shapes --seed-results DIR` writes replay408.shapes.json.

What is public are the questions' ids and types, the prompt tokens of 12 batches of canvases, and what the hosted model
billed per case. Two reconstructions, both with 46 nodes (an id without its last part), 20 cases (an id without its
last two parts), every node of a case about the same document, and 56 canvases that hold exactly 300,431 prompt tokens:

`rule`    a question takes 40 prompt tokens and the template 60. The canvases, in the order of what their case was
          billed per node (the five invoices on top), get the lengths that the 12 batch records imply: within a batch
          evenly spread from twice the mean minus the longest to the longest. A case's document is as long as its
          canvases want on average.
`billed`  a case's nodes hold the tokens it was billed for (0.042 USD a million: every saved price is a whole number of
          tokens then). An invoice question takes what makes the canvases add up, 411 tokens, any other 40. Closer to
          the truth: the run with one question a sequence gets 2.55 M prompt tokens (recorded: 2.21 M), where `rule`
          gives it 3.76 M; and it is the harder one for an engine that reads a document once.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ["Case", "Node", "Shapes", "billed", "load", "rule"]

FILE = Path(__file__).with_name("replay408.shapes.json")
USD_PER_TOKEN = 0.042e-6
QUESTION_TOKENS = 40
TEMPLATE_TOKENS = 60
FIELDS_PER_CANVAS = 18
"""Fields that fill 256 canvas tokens: with 18 (or 19) the 46 nodes make the recorded 56 canvases."""
INVOICES = "invoice_processing/"


@dataclass(frozen=True, slots=True)
class Node:
    """Questions that the seed asked together; `options` is how many answers each allows."""

    id: str
    options: tuple[int, ...]

    @property
    def canvases(self) -> list[int]:
        """Questions per shared canvas, filled in order."""
        count = len(self.options)
        return [min(FIELDS_PER_CANVAS, count - first) for first in range(0, count, FIELDS_PER_CANVAS)]


@dataclass(frozen=True, slots=True)
class Case:
    """One document; lengths in tokens."""

    id: str
    document: int
    question: int
    nodes: tuple[Node, ...]

    @property
    def questions(self) -> int:
        return sum(len(node.options) for node in self.nodes)

    @property
    def prompts(self) -> list[int]:
        """Prompt tokens of its canvases in the seed's way: template, document and the canvas's questions."""
        return [
            TEMPLATE_TOKENS + self.document + self.question * count for node in self.nodes for count in node.canvases
        ]


@dataclass(frozen=True)
class Shapes:
    """The whole run."""

    cases: tuple[Case, ...]

    @cached_property
    def prompts(self) -> list[int]:
        return sorted(tokens for case in self.cases for tokens in case.prompts)

    @property
    def unique_tokens(self) -> int:
        """Prompt tokens when a document is read once per case."""
        return sum(TEMPLATE_TOKENS + case.document + case.question * case.questions for case in self.cases)

    def part(self, documents: float, *, cases: int) -> Shapes:
        """A small form for tests: so many cases of each workflow, documents cut to a share, 20 questions a node."""
        kept: list[Case] = []
        for case in self.cases:
            workflow = case.id.partition("/")[0]
            if sum(other.id.startswith(workflow) for other in kept) < cases:
                nodes = tuple(Node(node.id, node.options[:20]) for node in case.nodes)
                kept.append(Case(case.id, max(1, round(case.document * documents)), min(case.question, 40), nodes))
        return Shapes(tuple(kept))


def rule(
    nodes: Mapping[str, Sequence[Node]], price: Mapping[str, float], records: Sequence[Mapping[str, int]]
) -> Shapes:
    """The first reconstruction; see the module's docstring."""
    targets: list[float] = []
    for record in sorted(records, key=lambda record: record["padded_input_tokens"] / record["batch_size"]):
        count, longest = record["batch_size"], record["padded_input_tokens"] / record["batch_size"]
        shortest = 2 * record["input_tokens"] / count - longest
        targets += [shortest + (longest - shortest) * at / (count - 1) for at in range(count)]
    order = sorted(nodes, key=lambda case: (case.startswith(INVOICES), price[case] / len(nodes[case])))
    wanted: dict[str, float] = {}
    first = 0
    for case in order:
        counts = [count for node in nodes[case] for count in node.canvases]
        mean = sum(targets[first : first + len(counts)]) / len(counts)
        wanted[case] = mean - TEMPLATE_TOKENS - QUESTION_TOKENS * sum(counts) / len(counts)
        first += len(counts)
    return _whole(
        nodes, wanted, dict.fromkeys(nodes, QUESTION_TOKENS), sum(record["input_tokens"] for record in records)
    )


def billed(nodes: Mapping[str, Sequence[Node]], price: Mapping[str, float], total: int) -> Shapes:
    """The second reconstruction; see the module's docstring."""

    def documents(invoice_question: int) -> tuple[dict[str, float], dict[str, int]]:
        each = {case: invoice_question if case.startswith(INVOICES) else QUESTION_TOKENS for case in nodes}
        asked = {case: sum(len(node.options) for node in nodes[case]) for case in nodes}
        tokens = {case: round(price[case] / USD_PER_TOKEN) for case in nodes}
        return {
            case: (tokens[case] - each[case] * asked[case]) / len(nodes[case]) - TEMPLATE_TOKENS for case in nodes
        }, each

    def grouped(invoice_question: int) -> float:
        wanted, each = documents(invoice_question)
        return sum(
            TEMPLATE_TOKENS + wanted[case] + each[case] * count
            for case, own in nodes.items()
            for node in own
            for count in node.canvases
        )

    question = min(range(1, 1000), key=lambda tokens: abs(grouped(tokens) - total))
    return _whole(nodes, *documents(question), total)


def _whole(
    nodes: Mapping[str, Sequence[Node]], wanted: Mapping[str, float], question: Mapping[str, int], total: int
) -> Shapes:
    """Rounds documents to whole tokens so that the canvases hold exactly `total`: down, then up again by the largest
    remainder of a case with few enough canvases, then one token at a time on cases with one canvas."""
    lengths = {case: math.floor(value) for case, value in wanted.items()}
    weight = {case: sum(len(node.canvases) for node in own) for case, own in nodes.items()}

    def made() -> Shapes:
        return Shapes(tuple(Case(case, lengths[case], question[case], tuple(own)) for case, own in nodes.items()))

    missing = total - sum(made().prompts)
    for case in sorted(wanted, key=lambda case: lengths[case] - wanted[case]):
        if 0 < weight[case] <= missing:
            lengths[case] += 1
            missing -= weight[case]
    single = [case for case in nodes if weight[case] == 1]
    for at in range(abs(missing)):
        lengths[single[at % len(single)]] += 1 if missing > 0 else -1
    return made()


def load(name: str = "rule", path: Path = FILE) -> Shapes:
    """The committed shapes: `rule` or `billed`. Raises KeyError."""
    raw = json.loads(path.read_text(encoding="utf-8"))[name]
    return Shapes(
        tuple(
            Case(
                case["id"],
                case["document"],
                case["question"],
                tuple(Node(node["id"], tuple(node["options"])) for node in case["nodes"]),
            )
            for case in raw["cases"]
        )
    )


def generate(directory: Path) -> dict[str, Any]:
    """Both reconstructions from the seed's recorded numbers: ids, types and prices of the 1-step run, batch records."""
    questions = [json.loads(line) for line in (directory / "public_evals_1step.jsonl").read_text().splitlines()]
    one_step = json.loads((directory / "public_evals_1step.meta.json").read_text())
    records = json.loads((directory / "public_evals_grouped_2step.meta.json").read_text())["records"]
    options: dict[str, list[int]] = {}
    for question in questions:
        count = 2 if question["type"] == "noul" else len(question["jev"]["probabilities"])
        options.setdefault(question["id"].rpartition("/")[0], []).append(count)
    nodes: dict[str, list[Node]] = {}
    for node, counts in options.items():
        nodes.setdefault(node.rpartition("/")[0], []).append(Node(node, tuple(counts)))
    saved = one_step["jev_saved_case_costs"]["cases"]
    price = {f"{case['workflow']}/{case['case']}": case["usd"] for case in saved}
    total = sum(record["input_tokens"] for record in records)
    made = {"rule": rule(nodes, price, records), "billed": billed(nodes, price, total)}
    summary = {
        name: {
            "canvases": len(shapes.prompts),
            "prompt_tokens_grouped": sum(shapes.prompts),
            "prompt_tokens_one_question_a_sequence": sum(
                case.questions * (TEMPLATE_TOKENS + case.document + case.question) for case in shapes.cases
            ),
            "prompt_tokens_unique": shapes.unique_tokens,
            "longest_prompt": max(shapes.prompts),
        }
        for name, shapes in made.items()
    }
    return {name: {"summary": summary[name], **asdict(shapes)} for name, shapes in made.items()}


def _lines(made: Mapping[str, Any]) -> str:
    """JSON with a case a line."""
    parts = []
    for name, shapes in made.items():
        cases = ",\n".join(f"   {json.dumps(case)}" for case in shapes["cases"])
        parts.append(f' "{name}": {{\n  "summary": {json.dumps(shapes["summary"])},\n  "cases": [\n{cases}\n  ]\n }}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed-results", type=Path, required=True, help="the recorded numbers of the seed's runs")
    parser.add_argument("--out", type=Path, default=FILE, help="default %(default)s")
    chosen = parser.parse_args()
    made = generate(chosen.seed_results)
    chosen.out.write_text(_lines(made), encoding="utf-8")
    for name, shapes in made.items():
        print(name, shapes["summary"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
