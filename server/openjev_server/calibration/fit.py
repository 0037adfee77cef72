"""Fits a temperature by maximum likelihood."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from openjev_server.calibration.temperature import FLOOR, rescale

__all__ = ["fit_temperature", "log_loss"]

LOWEST, HIGHEST = 0.2, 20.0
GOLDEN = (5**0.5 - 1) / 2


def log_loss(
    answers: Sequence[NDArray[np.float64]], gold: Sequence[int], weights: Sequence[float], temperature: float
) -> float:
    """Weighted mean of -log p(gold) at a temperature, in nats."""
    losses = [-np.log(max(rescale(p, temperature)[g], FLOOR)) for p, g in zip(answers, gold, strict=True)]
    return float(np.average(losses, weights=weights))


def fit_temperature(
    answers: Sequence[NDArray[np.float64]], gold: Sequence[int], weights: Sequence[float] | None = None
) -> float:
    """The temperature between 0.2 and 20 with the smallest log loss, to 0.1 %.

    The loss is convex in 1 / T, so it has one minimum and golden-section search over log T finds it.
    Raises ValueError without answers.
    """
    if not answers:
        raise ValueError("a temperature needs answers to be fitted to")
    given = [1.0] * len(answers) if weights is None else list(weights)
    low, high = np.log(LOWEST), np.log(HIGHEST)

    def loss(log_temperature: float) -> float:
        return log_loss(answers, gold, given, float(np.exp(log_temperature)))

    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    loss_left, loss_right = loss(left), loss(right)
    while high - low > 1e-3:
        if loss_left < loss_right:
            high, right, loss_right = right, left, loss_left
            left = high - GOLDEN * (high - low)
            loss_left = loss(left)
        else:
            low, left, loss_left = left, right, loss_right
            right = low + GOLDEN * (high - low)
            loss_right = loss(right)
    return float(np.exp((low + high) / 2))
