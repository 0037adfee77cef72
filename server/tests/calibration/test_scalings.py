"""Maps are found again from data that they made, and keep what they promise to keep."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from openjev_server.calibration.fit import fit_by_count, fit_damped, fit_platt, fit_temperature, fit_vector, one_hot
from openjev_server.calibration.scalings import (
    MOST_DAMPING,
    CountScaling,
    DampedScaling,
    PlattScaling,
    Scaling,
    TemperatureScaling,
    VectorScaling,
    normalised,
)
from pydantic import ValidationError

Float = NDArray[np.float64]
NAMES = ("a", "b", "c", "d", "e")


def made_by(scaling: Scaling, counts: tuple[int, ...], rows: int = 3000) -> tuple[list[Float], list[Float]]:
    """Log-probabilities, and what the map makes of them as soft targets: fitting has to find the map."""
    rng = np.random.default_rng(0)
    log_p = [np.log(rng.dirichlet(np.full(counts[i % len(counts)], 0.5)) + 1e-9) for i in range(rows)]
    return log_p, [normalised(scaling.logits(x, NAMES[: len(x)])) for x in log_p]


def test_a_temperature_is_found_again() -> None:
    found = fit_temperature(*made_by(TemperatureScaling(temperature=2.5), (2, 4), rows=200))
    assert found.temperature == pytest.approx(2.5, rel=1e-3)


def test_a_temperature_is_found_from_labels() -> None:
    rng = np.random.default_rng(0)
    log_p, targets = made_by(TemperatureScaling(temperature=2.5), (4,))
    labels = [one_hot(4, int(rng.choice(4, p=t))) for t in targets]
    assert fit_temperature(log_p, labels).temperature == pytest.approx(2.5, rel=0.06)


def test_weights_count() -> None:
    log_p = [np.log([0.9, 0.1])] * 2
    targets = [np.array([0.7, 0.3]), np.array([0.6, 0.4])]
    alone = fit_temperature(log_p[:1], targets[:1])
    assert fit_temperature(log_p, targets, [1.0, 0.0]).temperature == pytest.approx(alone.temperature)
    assert fit_temperature(log_p, targets, [1.0, 1.0]).temperature > alone.temperature


def test_a_bias_is_found_again_and_moves_the_answer() -> None:
    found = fit_platt(*made_by(PlattScaling(slope=0.4, bias=-0.7), (2,), rows=200))
    assert (found.slope, found.bias) == pytest.approx((0.4, -0.7), abs=1e-3)
    yes, no = normalised(found.logits(np.log([0.6, 0.4]), ("true", "false")))
    assert yes < 0.5 < no


def test_a_bias_fits_the_slope_that_is_kept() -> None:
    log_p = [np.log([0.9, 0.1]), np.log([0.1, 0.9])]
    found = fit_platt(log_p, [np.array([0.3, 0.7]), np.array([0.4, 0.6])])  # the wrong way round
    assert found.slope == 0.05
    assert found.bias == pytest.approx(np.log(0.35 / 0.65), abs=0.02)


def test_damping_is_found_again() -> None:
    found = fit_damped(*made_by(DampedScaling(slope=1.3, damping=1.6), (2, 5), rows=400))
    assert (found.slope, found.damping) == pytest.approx((1.3, 1.6), abs=1e-2)
    assert fit_damped(*made_by(TemperatureScaling(temperature=2), (3,), rows=200)).damping == pytest.approx(0, abs=1e-2)


def test_a_slope_by_the_number_of_answers_is_found_again() -> None:
    found = fit_by_count(*made_by(CountScaling(counts=(2, 5), slopes=(0.3, 0.9)), (2, 3, 5), rows=400))
    assert found.counts == (2, 5)
    assert found.slopes == pytest.approx((0.3, 0.9), abs=1e-2)


def test_beyond_the_fitted_numbers_of_answers_the_slope_stays() -> None:
    scaling = CountScaling(counts=(3, 5), slopes=(0.3, 0.9))
    for n, slope in ((2, 0.3), (3, 0.3), (5, 0.9), (255, 0.9)):
        log_p = np.linspace(-3, -1, n)
        np.testing.assert_allclose(scaling.logits(log_p, [""] * n), slope * log_p)


def test_vector_scaling_goes_by_names_and_not_by_places() -> None:
    log_p, targets = made_by(
        VectorScaling(
            answers=NAMES[:3], slopes=(0.5, 0.5, 0.5), biases=(1, 0, -1), otherwise=TemperatureScaling(temperature=2)
        ),
        (3,),
    )
    found = fit_vector(NAMES[:3], log_p, targets)
    assert found.biases == pytest.approx((1, 0, -1), abs=0.2)  # pulled towards the temperature
    there = found.logits(log_p[0], ("a", "b", "c"))
    back = found.logits(log_p[0][::-1], ("c", "b", "a"))
    np.testing.assert_allclose(there, back[::-1])
    others = found.logits(log_p[0], ("a", "b", "x"))
    np.testing.assert_allclose(others, log_p[0] / found.otherwise.temperature)


@pytest.mark.parametrize("fitter", [fit_temperature, fit_platt, fit_damped, fit_by_count])
def test_fitting_needs_rows(fitter: object) -> None:
    with pytest.raises(ValueError, match="needs"):
        fitter([], [])  # type: ignore[operator]


def test_one_number_of_answers_gives_no_slope_by_count() -> None:
    with pytest.raises(ValueError, match="two numbers"):
        fit_by_count(*made_by(TemperatureScaling(temperature=2), (3,), rows=10))


@settings(deadline=None)
@given(
    st.lists(st.floats(1e-6, 1), min_size=2, max_size=20),
    st.floats(0.05, 5),
    st.floats(0, MOST_DAMPING),
    st.sampled_from(["temperature", "damped", "by_count"]),
)
def test_the_order_of_answers_stays(weights: list[float], slope: float, damping: float, method: str) -> None:
    p = np.array(weights) / sum(weights)
    scaling: Scaling = TemperatureScaling(temperature=1 / slope)
    if method == "damped":
        scaling = DampedScaling(slope=slope, damping=damping * slope)
    elif method == "by_count":
        scaling = CountScaling(counts=(2, 9), slopes=(slope, 1.0))
    after = normalised(scaling.logits(np.log(p), [""] * len(p)))
    assert after.sum() == pytest.approx(1)
    by_size = after[np.argsort(p)]
    assert (np.diff(by_size) >= -1e-12).all()
    assert after[p.argmax()] == after.max()


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (TemperatureScaling, {"temperature": 0}),
        (TemperatureScaling, {"temperature": float("nan")}),
        (PlattScaling, {"slope": -1, "bias": 0}),
        (DampedScaling, {"slope": 1, "damping": 2}),
        (CountScaling, {"counts": (5, 3), "slopes": (1, 1)}),
        (VectorScaling, {"answers": ("a", "a"), "slopes": (1, 1), "biases": (0, 0), "otherwise": {"temperature": 1}}),
    ],
)
def test_maps_that_would_do_harm_are_refused(model: type[Scaling], values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(values)
