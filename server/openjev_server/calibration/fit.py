"""Fits maps by maximum likelihood. Every one of them is linear in its parameters, so the loss is convex and Newton's
method finds its one minimum.

An answer's logits are `features @ parameters`, features of shape [answers, parameters]. Targets are distributions: a
label is one that puts everything on one answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from openjev_server.calibration.scalings import (
    HIGHEST_SLOPE,
    LOWEST_SLOPE,
    MOST_DAMPING,
    CountScaling,
    DampedScaling,
    Float,
    PlattScaling,
    TemperatureScaling,
    VectorScaling,
)

__all__ = ["fit_by_count", "fit_damped", "fit_platt", "fit_temperature", "fit_vector", "one_hot"]

STEPS = 100
RIDGE = 1e-6
"""Keeps the curvature invertible where the data do not determine a parameter."""
VECTOR_RIDGE = 1e-2
"""Pulls vector scaling to the temperature: 2 n parameters on few rows would learn the rows."""


def one_hot(count: int, index: int) -> Float:
    """The target of a label."""
    target: Float = np.eye(count)[index]
    return target


def fit_temperature(
    log_p: Sequence[Float], targets: Sequence[Float], weights: Sequence[float] | None = None
) -> TemperatureScaling:
    """One temperature between 0.2 and 20. Raises ValueError without rows."""
    (slope,) = _fit([x[:, None] for x in log_p], targets, weights, [1.0])
    return TemperatureScaling(temperature=1 / _slope(slope))


def fit_platt(log_p: Sequence[Float], targets: Sequence[Float], weights: Sequence[float] | None = None) -> PlattScaling:
    """Slope and bias of the logit, for rows of [true, false]. Raises ValueError without rows."""
    yes = np.array([1.0, 0.0])
    slope, bias = _fit([np.stack([x, yes], axis=1) for x in log_p], targets, weights, [1.0, 0.0])
    if not LOWEST_SLOPE <= slope <= HIGHEST_SLOPE:  # the bias has to be fitted to the slope that is kept
        fixed = _slope(slope)
        (bias,) = _fit([yes[:, None] for _ in log_p], targets, weights, [0.0], [fixed * x for x in log_p])
        slope = fixed
    return PlattScaling(slope=slope, bias=float(bias))


def fit_damped(
    log_p: Sequence[Float], targets: Sequence[Float], weights: Sequence[float] | None = None
) -> DampedScaling:
    """Slope and damping, within what keeps the order of the answers. Raises ValueError without rows."""
    slope, damping = _fit([np.stack([x, -np.exp(x)], axis=1) for x in log_p], targets, weights, [1.0, 0.0])
    if damping < 0:
        (slope,), damping = _fit([x[:, None] for x in log_p], targets, weights, [1.0]), 0.0
    elif damping > MOST_DAMPING * slope:
        (slope,) = _fit([(x - MOST_DAMPING * np.exp(x))[:, None] for x in log_p], targets, weights, [1.0])
        damping = MOST_DAMPING * slope
    slope = _slope(slope)
    return DampedScaling(slope=slope, damping=min(float(damping), MOST_DAMPING * slope))


def fit_by_count(
    log_p: Sequence[Float], targets: Sequence[Float], weights: Sequence[float] | None = None
) -> CountScaling:
    """A slope that is linear in the log of the number of answers. Raises ValueError unless two counts occur."""
    counts = [len(x) for x in log_p]
    low, high = min(counts, default=0), max(counts, default=0)
    if low == high:
        raise ValueError("a slope by the number of answers needs rows with two numbers of answers")
    share = [float(np.log(n / low) / np.log(high / low)) for n in counts]
    rows = [np.stack([x * (1 - s), x * s], axis=1) for x, s in zip(log_p, share, strict=True)]
    first, last = _fit(rows, targets, weights, [1.0, 1.0])
    return CountScaling(counts=(low, high), slopes=(_slope(first), _slope(last)))


def fit_vector(
    answers: Sequence[str],
    log_p: Sequence[Float],
    targets: Sequence[Float],
    weights: Sequence[float] | None = None,
) -> VectorScaling:
    """A slope and a bias for each answer, for rows in this order of answers; pulled towards the rows' temperature.

    Raises ValueError without rows.
    """
    n = len(answers)
    otherwise = fit_temperature(log_p, targets, weights)
    start = [1 / otherwise.temperature] * n + [0.0] * n
    rows = [np.concatenate([np.diag(x), np.eye(n)], axis=1) for x in log_p]
    found = _fit(rows, targets, weights, start, ridge=VECTOR_RIDGE)
    slopes = tuple(_slope(x) for x in found[:n])
    biases = tuple(float(x - found[n:].mean()) for x in found[n:])
    return VectorScaling(answers=tuple(answers), slopes=slopes, biases=biases, otherwise=otherwise)


def _slope(value: float) -> float:
    return float(np.clip(value, LOWEST_SLOPE, HIGHEST_SLOPE))


def _fit(
    rows: Sequence[Float],
    targets: Sequence[Float],
    weights: Sequence[float] | None,
    start: Sequence[float],
    offsets: Sequence[Float] | None = None,
    ridge: float = RIDGE,
) -> Float:
    """The parameters of the smallest weighted cross-entropy, in nats, plus `ridge` / 2 times their squared distance
    from `start`."""
    if not rows:
        raise ValueError("a calibration needs answers to be fitted to")
    x, there = _padded(rows)
    target, _ = _padded([np.asarray(t, np.float64)[:, None] for t in targets])
    added = 0.0 if offsets is None else _padded([o[:, None] for o in offsets])[0][..., 0]
    w = np.ones(len(rows)) if weights is None else np.asarray(weights, np.float64)
    w, t = w / w.sum(), target[..., 0]
    origin = np.array(start, np.float64)

    def loss_at(parameters: Float) -> tuple[float, Float]:
        z = np.where(there, x @ parameters + added, -np.inf)
        z = z - z.max(axis=1, keepdims=True)
        log_q = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        cross = -(t * np.where(there, log_q, 0.0)).sum(axis=1)
        return float(w @ cross + ridge / 2 * ((parameters - origin) ** 2).sum()), np.exp(log_q)

    found = origin
    loss, q = loss_at(found)
    for _ in range(STEPS):
        wq = w[:, None] * q
        mean = np.einsum("ik,ikj->ij", q, x)
        gradient = np.einsum("ik,ikj->j", w[:, None] * (q - t), x) + ridge * (found - origin)
        curvature = np.einsum("ikj,ikl->jl", wq[..., None] * x, x) - np.einsum("ij,il->jl", w[:, None] * mean, mean)
        direction = np.linalg.solve(curvature + ridge * np.eye(len(found)), gradient)
        size = 1.0
        while size > 1e-8 and (trial := loss_at(found - size * direction))[0] > loss:
            size /= 2
        if size <= 1e-8 or loss - trial[0] < 1e-10:
            break
        found, (loss, q) = found - size * direction, trial
    return found


def _padded(rows: Sequence[Float]) -> tuple[Float, NDArray[np.bool_]]:
    """Rows of different lengths as one array, zeros behind, and where they are."""
    longest = max(len(row) for row in rows)
    values = np.zeros((len(rows), longest, rows[0].shape[1]))
    there = np.zeros((len(rows), longest), bool)
    for number, row in enumerate(rows):
        values[number, : len(row)], there[number, : len(row)] = row, True
    return values, there
