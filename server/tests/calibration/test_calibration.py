"""Temperatures are found again, keep the top answer, and apply only to what they were fitted on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_server.calibration import IDENTITY, CalibrationError, TemperatureScaling, choose, fit_temperature
from openjev_server.calibration.files import FILE_NAME, read_calibrations
from openjev_server.calibration.temperature import rescale
from openjev_server.questions import Noul, Score

BINDING = {"template": "nano-label-v1", "template_hash": "aa", "weights_hash": "bb"}
ENTRY = {
    "layout": "isolated",
    "steps": 2,
    "temperatures": {"choice": 1.5, "noul": 2.0, "score": 1.2},
    "fitted_on": "a test",
}


def test_a_known_temperature_is_found_again() -> None:
    rng = np.random.default_rng(0)
    honest = [rng.dirichlet(np.full(4, 0.7)) for _ in range(6000)]
    gold = [int(rng.choice(4, p=p)) for p in honest]
    overconfident = [rescale(p, 1 / 2.5) for p in honest]
    assert fit_temperature(overconfident, gold) == pytest.approx(2.5, rel=0.06)


def test_fitting_needs_answers() -> None:
    with pytest.raises(ValueError, match="needs answers"):
        fit_temperature([], [])


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=20), st.floats(0.2, 20))
def test_scaling_keeps_the_order_and_sums_to_one(weights: list[float], temperature: float) -> None:
    before = np.array(weights) / sum(weights)
    after = rescale(before, temperature)
    assert after.sum() == pytest.approx(1.0)
    assert after[before.argmax()] == after.max()


def test_a_zero_stays_small_and_finite() -> None:
    assert rescale([1.0, 0.0], 3.0).tolist() == pytest.approx([0.9999, 1e-4], abs=1e-4)


def test_each_type_has_its_own_temperature() -> None:
    scaling = TemperatureScaling({"choice": 1.0, "noul": 2.0, "score": 1.0})
    assert list(scaling.apply(Noul("q", "x?"), [0.9, 0.1])) == pytest.approx([0.75, 0.25])
    assert list(scaling.apply(Score("q", None, ("a", "b")), [0.9, 0.1])) == pytest.approx([0.9, 0.1])
    assert scaling.hash != TemperatureScaling({"choice": 1.0, "noul": 2.1, "score": 1.0}).hash


@pytest.mark.parametrize("other", [{"weights_hash": "cc"}, {"template_hash": "cc"}, {"template": "x"}, {}])
def test_a_file_applies_to_its_own_weights_and_template(tmp_path: Path, other: dict[str, str]) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps({**BINDING, **other, "entries": [ENTRY]}))
    found = read_calibrations(tmp_path, **BINDING)
    assert (choose(found, "isolated", 2) is IDENTITY) == bool(other)
    assert choose(found, "isolated", 1) is IDENTITY
    assert choose(found, "grouped", 2) is IDENTITY


def test_no_file_is_the_identity(tmp_path: Path) -> None:
    assert read_calibrations(tmp_path, **BINDING) == {}


@pytest.mark.parametrize("change", [{"steps": 0}, {"temperatures": {"choice": -1, "noul": 1, "score": 1}}, {"x": 1}])
def test_a_malformed_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps({**BINDING, "entries": [{**ENTRY, **change}]}))
    with pytest.raises(CalibrationError, match=FILE_NAME):
        read_calibrations(tmp_path, **BINDING)
