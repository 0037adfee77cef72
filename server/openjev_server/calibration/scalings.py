"""Maps of one question's probabilities to calibrated ones, in the form in which calibration files hold them.

Each adds or multiplies something in the log domain, and normalises. Only Platt and vector scaling can move another
answer to the top; the others keep the order of the answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, PositiveInt, model_validator

__all__ = [
    "HIGHEST_SLOPE",
    "LOWEST_SLOPE",
    "MOST_DAMPING",
    "ChoiceScaling",
    "CountScaling",
    "DampedScaling",
    "Float",
    "NoulScaling",
    "PlattScaling",
    "Scaling",
    "ScoreScaling",
    "TemperatureScaling",
    "VectorScaling",
    "normalised",
]

Float = NDArray[np.float64]
LOWEST_SLOPE, HIGHEST_SLOPE = 0.05, 5.0
"""1 / temperature: beyond temperatures of 20 and 0.2 a fit says that its data are at fault."""
MOST_DAMPING = 1.9
"""Times the slope: at 2 the order of answers near 1/2 would hang on rounding."""

Slope = Annotated[FiniteFloat, Field(ge=LOWEST_SLOPE, le=HIGHEST_SLOPE)]


def normalised(logits: Float) -> Float:
    """Probabilities of logits, float64 [n], summing to 1."""
    weights = np.exp(logits - logits.max())
    probabilities: Float = weights / weights.sum()
    return probabilities


class Scaling(BaseModel, ABC):
    """One map."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @abstractmethod
    def logits(self, log_p: Float, answers: Sequence[str]) -> Float:
        """New logits, float64 [n], for log-probabilities [n] of the answers with these names."""
        ...


class TemperatureScaling(Scaling):
    """log p / T (Guo et al. 2017, "On Calibration of Modern Neural Networks")."""

    method: Literal["temperature"] = "temperature"
    temperature: Annotated[FiniteFloat, Field(ge=1 / HIGHEST_SLOPE, le=1 / LOWEST_SLOPE)]

    def logits(self, log_p: Float, answers: Sequence[str]) -> Float:
        scaled: Float = log_p / self.temperature
        return scaled


class PlattScaling(Scaling):
    """slope * logit + bias for yes/no (Platt 1999): the bias says yes or no more often than the model does."""

    method: Literal["platt"] = "platt"
    slope: Slope
    bias: FiniteFloat

    def logits(self, log_p: Float, answers: Sequence[str]) -> Float:
        moved: Float = self.slope * log_p + np.array([self.bias, 0.0])
        return moved


class VectorScaling(Scaling):
    """slope_i * log p_i + bias_i for one set of answers, wherever they stand (Guo et al. 2017); a temperature for
    questions with other answers."""

    method: Literal["vector"] = "vector"
    answers: tuple[str, ...]
    slopes: tuple[Slope, ...]
    biases: tuple[FiniteFloat, ...]
    otherwise: TemperatureScaling

    @model_validator(mode="after")
    def _same_lengths(self) -> Self:
        if not len(set(self.answers)) == len(self.answers) == len(self.slopes) == len(self.biases):
            raise ValueError("a slope and a bias for each of the different answers")
        return self

    def logits(self, log_p: Float, answers: Sequence[str]) -> Float:
        if sorted(answers) != sorted(self.answers):
            return self.otherwise.logits(log_p, answers)
        place = {name: number for number, name in enumerate(self.answers)}
        order = [place[name] for name in answers]
        moved: Float = np.array(self.slopes)[order] * log_p + np.array(self.biases)[order]
        return moved


class DampedScaling(Scaling):
    """slope * log p - damping * p: flattens middling probabilities more than extreme ones.

    Between two answers whose probabilities are p and 1 - p the temperature is 1 / (slope - damping / 2) at p = 1/2, and
    1 / slope towards 0 and 1. Below a damping of 2 * slope the order of the answers stays: slope * log p - damping * p
    grows up to p = 1/2, and at most one p lies beyond, where it is still above what 1 - p gives.
    """

    method: Literal["damped"] = "damped"
    slope: Slope
    damping: Annotated[FiniteFloat, Field(ge=0)]

    @model_validator(mode="after")
    def _keeps_the_order(self) -> Self:
        if self.damping > MOST_DAMPING * self.slope + 1e-9:
            raise ValueError(f"damping of more than {MOST_DAMPING} * slope could change which answer is on top")
        return self

    def logits(self, log_p: Float, answers: Sequence[str]) -> Float:
        scaled: Float = self.slope * log_p - self.damping * np.exp(log_p)
        return scaled


class CountScaling(Scaling):
    """slope(n) * log p for n answers: linear in log n between the counts that it was fitted on, constant beyond."""

    method: Literal["by_count"] = "by_count"
    counts: tuple[PositiveInt, PositiveInt]
    slopes: tuple[Slope, Slope]

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.counts[0] >= self.counts[1]:
            raise ValueError("counts must ascend")
        return self

    def logits(self, log_p: Float, answers: Sequence[str]) -> Float:
        return float(np.interp(np.log(len(log_p)), np.log(self.counts), self.slopes)) * log_p


NoulScaling = Annotated[TemperatureScaling | PlattScaling, Field(discriminator="method")]
ChoiceScaling = Annotated[TemperatureScaling | DampedScaling | VectorScaling, Field(discriminator="method")]
ScoreScaling = Annotated[TemperatureScaling | CountScaling | VectorScaling, Field(discriminator="method")]
