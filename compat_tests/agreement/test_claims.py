"""README's numbers are those of the committed results."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from claims import BEGIN, END, RESULTS, ROOT, Book, Claim, generated_section, lookup, problems, update_readme
from openjev_compat.metrics import Thresholds
from openjev_compat.pairing import Selection, select
from openjev_compat.report import build_report
from openjev_compat.store import load_fixtures

COMMITTED = ROOT / RESULTS


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
    for estimate, kept in zip(report.overall.estimates, committed["overall"]["estimates"], strict=True):
        assert asdict(estimate) == pytest.approx(kept)
    assert len(report.disagreements) == len(committed["disagreements"])


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
