"""README's numbers are those of the committed results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from claims import (
    BEGIN,
    END,
    RESULTS,
    ROOT,
    Book,
    Claim,
    generated_section,
    lookup,
    performance_section,
    problems,
    update_readme,
)
from openjev_compat.estimate import share
from openjev_compat.metrics import Thresholds
from openjev_compat.output import without_texts
from openjev_compat.pairing import Selection, select
from openjev_compat.report import Report, build_report
from openjev_compat.store import load_fixtures

COMMITTED = ROOT / RESULTS
BOTH = Thresholds()


def test_readme_and_results_agree() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    if not readme.strip():
        pytest.skip("there is no README yet")
    assert problems(readme, Book.load()) == []


@pytest.mark.parametrize(
    ("name", "left", "right", "on", "steps"),
    [
        ("public-evals-1step", "public_evals_1step", "public_evals", None, None),
        ("public-evals-grouped-1step", "public_evals_grouped_1step", "public_evals", None, None),
        ("public-evals-grouped-2step", "public_evals_grouped_2step", "public_evals", None, None),
        ("customer-voice-1step", "every_lab", "every_lab", "every-lab/customer-voice", 1),
        ("customer-voice-4step", "every_lab", "every_lab", "every-lab/customer-voice", 4),
    ],
)
def test_committed_results_come_from_the_fixtures(
    name: str, left: str, right: str, on: str | None, steps: int | None
) -> None:
    selection = Selection(on=on, steps=steps)
    fixtures = [
        select(load_fixtures([ROOT / "fixtures" / side / f"{stem}.jsonl"]), selection)
        for side, stem in (("seed", left), ("jev", right))
    ]
    report = build_report(*fixtures, names=("DiffusionGemma", "Jev"), thresholds=Thresholds())
    committed = json.loads((COMMITTED / f"{name}.json").read_text(encoding="utf-8"))
    assert differences(plain(report), committed) == []


@pytest.mark.parametrize("name", ["public-evals-1step", "embedded"])
def test_an_edited_value_is_noticed(name: str) -> None:
    """Whatever the README shows of a result, changed by hand and regenerated."""
    committed = json.loads((COMMITTED / f"{name}.json").read_text(encoding="utf-8"))
    recomputed = plain(_public_evals())
    sections = [committed["overall"], *committed["breakdowns"]["type"]]
    for section in sections:
        for row in (section["majority"], section["random"], lookup(section["estimates"], ["agreement"])):
            kept = row["value"]
            row["value"] = kept + 0.01
            assert embedded_problems(committed) if name == "embedded" else differences(recomputed, committed)
            row["value"] = kept


def test_the_embedded_result_is_consistent() -> None:
    """What of it needs no model: baselines and Jev's noise from the fixtures, agreement from its own disagreements.

    Total variation and validity need every answer: `test_embedded.py` asks for them again.
    """
    assert embedded_problems(json.loads((COMMITTED / "embedded.json").read_text(encoding="utf-8"))) == []


def embedded_problems(committed: dict[str, Any]) -> list[str]:
    jev = load_fixtures([ROOT / "fixtures" / "jev"])
    asked = [fixture for fixture in jev if fixture.request is not None]
    # Jev stands in for our side: neither the baselines nor its own noise depend on what ours answers.
    stand_in = plain(build_report([row for row in asked if row.run is None], asked, names=("", ""), thresholds=BOTH))
    found = []
    dimensions = [("all", [stand_in["overall"]], [committed["overall"]])]
    dimensions += [(name, rows, committed["breakdowns"][name]) for name, rows in stand_in["breakdowns"].items()]
    for dimension, expected, kept in dimensions:
        for right, section in zip(expected, kept, strict=True):
            mine = {"name": section["name"], "n": section["n"]}
            mine |= {baseline: section[baseline] for baseline in ("majority", "random")}
            found += differences({key: right[key] for key in mine}, mine, f"{dimension}/{section['name']}")
            if dimension in {"all", "type", "workflow"} and right["majority"] is not None:
                n = right["majority"]["n"]
                hits = n - sum(
                    dimension == "all" or row[dimension] == section["name"] for row in committed["disagreements"]
                )
                agreement = share("agreement", [True] * hits + [False] * (n - hits))
                assert agreement is not None
                found += differences(asdict(agreement), lookup(section["estimates"], ["agreement"]), section["name"])
    for right, floor in zip(stand_in["noise"], committed["noise"], strict=True):
        mine = {key: floor[key] for key in ("run", "n", "repeated")}
        found += differences({key: right[key] for key in mine}, mine, f"noise/{floor['run']}")
    return found


def plain(report: Report) -> Any:
    """As `benchmarks/agreement.py` writes it."""
    kept = replace(without_texts(report), latencies_ms=(), latency=None)
    return json.loads(json.dumps(kept.to_json()))


def differences(expected: Any, kept: Any, place: str = "") -> list[str]:
    """Every place at which they differ, but for rounding."""
    if isinstance(expected, dict) and isinstance(kept, dict) and expected.keys() == kept.keys():
        return [line for key in expected for line in differences(expected[key], kept[key], f"{place}/{key}")]
    if isinstance(expected, list) and isinstance(kept, list) and len(expected) == len(kept):
        pairs = enumerate(zip(expected, kept, strict=True))
        return [line for number, pair in pairs for line in differences(*pair, f"{place}/{number}")]
    numbers = isinstance(expected, int | float) and isinstance(kept, int | float)
    same = expected == (pytest.approx(kept) if numbers else kept)
    return [] if same else [f"{place}: {kept!r} instead of {expected!r}"]


@cache
def _public_evals() -> Report:
    left, right = (
        load_fixtures([ROOT / "fixtures" / side / f"{stem}.jsonl"])
        for side, stem in (("seed", "public_evals_1step"), ("jev", "public_evals"))
    )
    return build_report(left, right, names=("DiffusionGemma", "Jev"), thresholds=BOTH)


@pytest.mark.parametrize(("name", "section"), [("agreement", generated_section), ("performance", performance_section)])
def test_the_book_names_every_file_that_a_generated_section_reads(
    name: str, section: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = set()
    read_text = Path.read_text

    def noted(path: Path, *arguments: Any, **options: Any) -> str:
        read.add(path.relative_to(ROOT).as_posix())
        return read_text(path, *arguments, **options)

    sources = [source for source in Book.load().sections if source.name == name]
    monkeypatch.setattr(Path, "read_text", noted)
    assert section()
    assert sorted(read) == sorted(result for source in sources for result in source.results)
    for source in sources:
        words = [*dropwhile(lambda word: "=" in word, source.command.split())]  # settings of the environment first
        file = words[2].replace(".", "/") + ".py" if words[1] == "-m" else words[1]
        assert words[0] == "python"
        assert (ROOT / file).is_file()


def test_a_changed_result_is_noticed(tmp_path: Path) -> None:
    shutil.copytree(COMMITTED, tmp_path / RESULTS)
    readme = f"# Title\n\n{BEGIN}\n{generated_section(tmp_path)}\n{END}\n"
    assert problems(readme, Book((), ()), tmp_path) == []
    path = tmp_path / RESULTS / "public-evals-1step.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    lookup(result, ["overall", "estimates", "agreement"])["hits"] -= 1
    path.write_text(json.dumps(result), encoding="utf-8")
    assert "section is not what the results say" in problems(readme, Book((), ()), tmp_path)[0]


def test_every_measured_number_needs_a_claim(tmp_path: Path) -> None:
    shutil.copytree(COMMITTED, tmp_path / RESULTS)
    (tmp_path / "figures.json").write_text('{"p50": [{"name": "five", "ms": 41.26}], "share": 0.125}', encoding="utf-8")
    section = f"{BEGIN}\n{generated_section(tmp_path)}\n{END}\n"
    claim = Claim(
        "takes {} ms and {} of them fail",
        "python somewhere.py",
        (
            {"result": "figures.json", "path": ["p50", "five", "ms"], "format": ".1f"},
            {"result": "figures.json", "path": ["share"], "format": ".1%"},
        ),
    )
    good = f"It takes 41.3 ms and\n12.5% of them fail. Bodies end at 32 MiB, see `sleep 5 s`.\n{section}"
    assert problems(good, Book((claim,), ("32 MiB",)), tmp_path) == []
    assert "no claim covers '32 MiB'" in problems(good, Book((claim,), ()), tmp_path)[0]
    stale = good.replace("41.3", "40.9")
    found = problems(stale, Book((claim,), ("32 MiB",)), tmp_path)
    assert found[0] == "README does not say: takes 41.3 ms and 12.5% of them fail"
    assert any("'40.9 ms'" in line for line in found)


def test_the_section_is_put_between_the_markers(tmp_path: Path) -> None:
    shutil.copytree(COMMITTED, tmp_path / RESULTS)
    readme = tmp_path / "README.md"
    readme.write_text("# Title\n", encoding="utf-8")
    assert not update_readme(readme, tmp_path)
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nAfter.\n", encoding="utf-8")
    assert update_readme(readme, tmp_path)
    text = readme.read_text(encoding="utf-8")
    assert "old" not in text
    assert text.startswith("# Title\n")
    assert text.endswith("After.\n")
    assert "364/408 = 89.2%" in text
