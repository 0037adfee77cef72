"""README's measured numbers, kept equal to committed results: `python compat_tests/claims.py` rewrites what it can.

`claims.json` names for every number the sentence that shows it, the result file and place that it comes from, and the
command that makes the file. The sections between markers are generated whole, from the agreement reports and from what
the benchmarks kept; `sections` names the command and the result files of each.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Book", "Claim", "Source", "generated_section", "performance_section", "problems", "update_readme"]

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- agreement:begin -->", "<!-- agreement:end -->"
PERFORMANCE_BEGIN, PERFORMANCE_END = "<!-- performance:begin -->", "<!-- performance:end -->"
RESULTS = "benchmarks/results/agreement"
# A number that somebody measured: a share, a time, a size, or a count out of a count.
_MEASURED = re.compile(r"\d[\d,.]*\s?(?:%|ms\b|MB\b|MiB\b|GB\b|GiB\b|seconds\b|s\b)|\b\d+ of \d+\b|\b\d+/\d+\b")
_RUNS = (
    ("public-evals-1step", "408 public questions, one question a sequence, 1 step"),
    ("public-evals-grouped-1step", "the same, all questions of a node on one canvas, 1 step"),
    ("public-evals-grouped-2step", "the same, 2 steps"),
    ("customer-voice-1step", "customer voice, 24 messages of 6 questions, 1 step"),
    ("customer-voice-4step", "the same, 4 steps"),
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence with a `{}` for each value; a value is a result file, a path in it and a format."""

    text: str
    command: str
    values: tuple[Mapping[str, Any], ...]

    def rendered(self, root: Path = ROOT) -> str:
        shown = []
        for value in self.values:
            found = lookup(json.loads((root / value["result"]).read_text(encoding="utf-8")), value["path"])
            shown.append(format(found * value.get("times", 1), value.get("format", "")))
        return self.text.format(*shown)


@dataclass(frozen=True, slots=True)
class Source:
    """A command and the result files that it makes for the generated section of this name."""

    name: str
    command: str
    results: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Book:
    """`claims.json`. `not_measured`: numbers with a unit that are settings, limits or quotations."""

    claims: tuple[Claim, ...]
    not_measured: tuple[str, ...]
    sections: tuple[Source, ...] = ()

    @classmethod
    def load(cls, path: Path = ROOT / "claims.json") -> Book:
        book = json.loads(path.read_text(encoding="utf-8"))
        claims = tuple(Claim(entry["text"], entry["command"], tuple(entry["values"])) for entry in book["claims"])
        sections = tuple(Source(entry["name"], entry["command"], tuple(entry["results"])) for entry in book["sections"])
        return cls(claims, tuple(book["not_measured"]), sections)


def lookup(value: Any, path: Sequence[str | int]) -> Any:
    """Walk down; in a list a string finds the entry of that name."""
    for step in path:
        if isinstance(value, list) and isinstance(step, str):
            value = next(entry for entry in value if entry["name"] == step)
        else:
            value = value[step]
    return value


def problems(readme: str, book: Book, root: Path = ROOT) -> list[str]:
    """What is wrong with the README, a line each."""
    found = []
    section = _between(readme, BEGIN, END)
    if section is None:
        found.append(f"README has no section between {BEGIN} and {END}")
    elif section.strip() != generated_section(root).strip():
        found.append("README's agreement section is not what the results say: run python compat_tests/claims.py")
    section = _between(readme, PERFORMANCE_BEGIN, PERFORMANCE_END)
    if section is not None and section.strip() != performance_section(root).strip():
        found.append("README's performance section is not what the results say: run python compat_tests/claims.py")
    flat = _flat(readme)
    rendered = [_flat(claim.rendered(root)) for claim in book.claims]
    found += [f"README does not say: {text}" for text in rendered if text not in flat]
    rest = _flat(_prose(readme))
    for text in sorted([*rendered, *map(_flat, book.not_measured)], key=len, reverse=True):
        rest = rest.replace(text, " ")
    found += [f"no claim covers {match[0]!r} in: …{_around(rest, match)}…" for match in _MEASURED.finditer(rest)]
    return found


def generated_section(root: Path = ROOT) -> str:
    """The section "How close to Jev" out of the committed reports."""
    reports = {name: _report(root, name) for name, _ in _RUNS}
    lines = [
        "Each line compares top answers with Jev's own recorded ones; in brackets the 95 % interval. "
        "*Always the majority answer* is what a constant answer per question type would reach.",
        "",
        "| google/diffusiongemma-26B-A4B-it, as recorded by github.com/JoshuaSP/open-jev | same answer as Jev "
        "| majority | right by the references | Jev right |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, title in _RUNS:
        overall = reports[name]["overall"]
        row = [title, _shown(overall, "agreement"), f"{overall['majority']['value']:.1%}"]
        row += [_counted(overall, metric) for metric in ("accuracy_left", "accuracy_right")]
        lines.append(f"| {' | '.join(row)} |")
    embedded = root / RESULTS / "embedded.json"
    if embedded.exists():
        lines += ["", *_embedded(json.loads(embedded.read_text(encoding="utf-8")))]
    lines += [
        "",
        "Reproduce: `openjev agree --left fixtures/seed/public_evals_1step.jsonl --right fixtures/jev` for the first "
        "table, `openjev agree --url http://127.0.0.1:8000 --fixtures fixtures` for a running server; both write a "
        "page with plots and every disagreement with `--html FILE`, and fail a CI job with `--fail-under 0.95`. "
        "The page needs the extra `agree`: `.venv/bin/pip install -e '.[agree]'`.",
    ]
    return "\n".join(lines)


def performance_section(root: Path = ROOT) -> str:
    """The section of the benchmarks' results; empty where there are none."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    from benchmarks.table import section

    return section(root)


def update_readme(path: Path = ROOT / "README.md", root: Path = ROOT) -> bool:
    """Put the generated sections between their markers; whether the agreement section had them."""
    text = path.read_text(encoding="utf-8")
    old = _between(text, BEGIN, END)
    if old is None:
        return False
    text = text.replace(BEGIN + old + END, f"{BEGIN}\n{generated_section(root)}\n{END}")
    first, last = PERFORMANCE_BEGIN, PERFORMANCE_END
    old = _between(text, first, last)
    if old is not None:
        text = text.replace(first + old + last, f"{first}\n{performance_section(root)}\n{last}")
    path.write_text(text, encoding="utf-8")
    return True


def _embedded(report: Mapping[str, Any]) -> list[str]:
    overall = report["overall"]
    lines = [
        f"The embedded checkpoint (`{report['left']['models'][0]}`, CPU), asked the recorded questions whose text may "
        f"be published:",
        "",
        "| question type | same answer as Jev | majority | random | total variation distance |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for section in [*report["breakdowns"]["type"], overall]:
        variation = lookup(section["estimates"], ["total_variation", "value"])
        row = [section["name"], _shown(section, "agreement"), f"{section['majority']['value']:.1%}"]
        row += [f"{section['random']['value']:.1%}", f"{variation:.3f}"]
        lines.append(f"| {' | '.join(row)} |")
    lines += ["", f"Answers inside the allowed set: {_counted(overall, 'validity')}."]
    floors = {floor["run"]: floor for floor in report["noise"]}
    if {"run2", "shuffled"} <= set(floors):
        again, shuffled = (_floor(floors[run]) for run in ("run2", "shuffled"))
        lines.append(f"Jev against itself: asked again {again}; with its options in another order {shuffled}.")
    return lines


def _floor(floor: Mapping[str, Any]) -> str:
    agreement = lookup(floor["repeated"], ["agreement"])
    variation = lookup(floor["repeated"], ["total_variation", "value"])
    return f"{agreement['hits']}/{agreement['n']} the same, total variation {variation:.3f}"


def _report(root: Path, name: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((root / RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return report


def _shown(section: Mapping[str, Any], metric: str) -> str:
    row = lookup(section["estimates"], [metric])
    return f"{row['hits']}/{row['n']} = {row['value']:.1%} [{row['low'] * 100:.1f}-{row['high'] * 100:.1f}]"


def _counted(section: Mapping[str, Any], metric: str) -> str:
    row = next((row for row in section["estimates"] if row["name"] == metric), None)
    return "-" if row is None else f"{row['hits']}/{row['n']} = {row['value']:.1%}"


def _between(readme: str, begin: str, end: str) -> str | None:
    start, stop = readme.find(begin), readme.find(end)
    return readme[start + len(begin) : stop] if 0 <= start < stop else None


def _prose(readme: str) -> str:
    """Without the generated sections, code blocks and inline code."""
    for begin, end in ((BEGIN, END), (PERFORMANCE_BEGIN, PERFORMANCE_END)):
        section = _between(readme, begin, end)
        if section:
            readme = readme.replace(section, "")
    readme = re.sub(r"^```.*?^```", "", readme, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", readme)


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def _around(text: str, match: re.Match[str]) -> str:
    return text[max(0, match.start() - 30) : match.end() + 30]


def main() -> int:
    """The command."""
    if not update_readme():
        print(f"README has no lines {BEGIN} and {END}: put them where the section belongs", file=sys.stderr)
    found = problems((ROOT / "README.md").read_text(encoding="utf-8"), Book.load())
    print("\n".join(found) or "README and results agree")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
