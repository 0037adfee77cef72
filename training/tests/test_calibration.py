"""A checkpoint's calibration: fitted per type, reported with a task left out, and the seed's reproduced."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from openjev_server.calibration.files import FILE_NAME, read_file
from openjev_server.calibration.find import SHIPPED
from openjev_server.calibration.fit import fit_temperature
from openjev_server.calibration.report import apply, log_loss
from openjev_server.calibration.scalings import TemperatureScaling
from openjev_server.canvas.templates import NANO_LABEL, SEED
from openjev_training import calibrate
from openjev_training.calibrate import fit_kind, write_calibration
from openjev_training.predict import Record
from openjev_training.shipped_calibration import read_pairs

FIXTURES = Path(__file__).parents[2] / "fixtures"


def answers(task: str, kind: str, n: int, measure: str, right: float, count: int = 40) -> list[Record]:
    """Rows that say .9 and are right as often as asked."""
    rng = np.random.default_rng(len(task))
    found = []
    for number in range(count):
        top = int(rng.integers(n))
        p = np.full(n, 0.1 / (n - 1))
        p[top] = 0.9
        gold = top if number < right * count else (top + 1) % n
        steps = (tuple(p.tolist()),) * 2
        found.append(Record(measure, "plain", task, kind, number, gold, steps))
    return found


def everything() -> list[Record]:
    records = []
    for kind, n in (("choice", 4), ("noul", 2), ("score", 3)):
        for task, right in (("one", 0.6), ("three", 0.7), ("seven", 0.65)):
            records += answers(f"{kind}.{task}", kind, n, "held-out", right)
        records += answers(f"{kind}.cal", kind, 5 if kind == "score" else n, "cal", 0.9)
        records += answers(f"{kind}.test", kind, n, "test", 0.7)
    return records


def test_overconfidence_is_taken_back_and_the_report_is_of_left_out_tasks(tmp_path: Path) -> None:
    report = write_calibration(
        tmp_path, everything(), model="m", template=NANO_LABEL, weights_hash="w", fitted_on="a test"
    )
    for kind in ("choice", "noul", "score"):
        found = report["2 steps"][kind]
        name = "log loss, mean of tasks"
        assert found["after, a task left out"][name] < found["before"][name]
        assert found["before"]["rows"] == 120
        assert found["after, a task left out"]["right"] == found["before"]["right"], "the same answers are on top"
        assert set(found["before"]["tasks"]) == {f"{kind}.one", f"{kind}.three", f"{kind}.seven"}
    file = read_file(tmp_path / FILE_NAME)
    assert (file.template_hash, file.weights_hash) == (NANO_LABEL.hash, "w")
    assert {entry.steps for entry in file.entries} == {1, 2}


def test_a_left_out_task_has_no_part_in_its_own_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not in the choice of method and share, nor has the test split in anything."""
    seen: list[tuple[set[str | None], set[str | None]]] = []
    choose = calibrate._choose

    def watched(held_out: calibrate.Tasks, cal: calibrate.Tasks, kind: str) -> object:
        seen.append((set(held_out), set(cal)))
        return choose(held_out, cal, kind)

    monkeypatch.setattr(calibrate, "_choose", watched)
    fit_kind(everything(), "noul", 2)
    tasks = {"noul.one", "noul.three", "noul.seven"}
    assert [held for held, _ in seen] == [tasks, *(tasks - {task} for task in ("noul.one", "noul.three", "noul.seven"))]
    assert all(cal == {"noul.cal"} for _, cal in seen)


def test_one_task_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="needs two"):
        fit_kind(answers("one", "noul", 2, "held-out", 0.6), "noul", 1)


@pytest.mark.parametrize(("steps", "about"), [(1, 4), (4, 8)])
def test_the_shipped_temperatures_are_those_of_the_recorded_numbers(steps: int, about: int) -> None:
    rows = read_pairs(FIXTURES / "seed" / "every_lab.jsonl", FIXTURES / "jev" / "every_lab.jsonl", steps)
    assert (len(rows), len({row.group for row in rows})) == (192, 32)
    found = fit_temperature([row.log_p for row in rows], [row.target for row in rows])
    (path,) = SHIPPED.glob("*.json")
    file = read_file(path)
    assert file.template_hash == SEED.hash, "a template of other words needs a calibration of its own"
    (entry,) = (entry for entry in file.entries if entry.steps == steps)
    assert isinstance(entry.scalings.noul, TemperatureScaling)
    assert entry.scalings.noul.temperature == pytest.approx(found.temperature, abs=0.006)
    assert round(found.temperature) == about
    assert log_loss(rows, apply(found, rows)).mean() < 0.5 * log_loss(rows, apply(None, rows)).mean()


def test_the_card_and_the_results_agree() -> None:
    results = json.loads((FIXTURES.parent / "training/results/calibration.json").read_text())["2 steps"]
    card = (FIXTURES.parent / "server/openjev_server/models/nano/MODEL_CARD.md").read_text()
    for kind, name in (("choice", "choice"), ("noul", "yes/no"), ("score", "score")):
        (row,) = (line for line in card.splitlines() if line.startswith(f"| {name} | ") and "temperature" in line)
        found = results[kind]
        before, left_out, same = (
            found[part] for part in ("before", "after, a task left out", "after, fitted on the same rows")
        )
        numbers = [before["ece"], left_out["ece"], same["ece"], before["brier"], left_out["brier"]]
        assert row.split(" | ")[4:] == [*(f"{x:.3f}"[1:] for x in numbers[:-1]), f"{numbers[-1]:.3f}"[1:] + " |"]
