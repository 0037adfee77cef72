"""Temperature scaling: p_i ** (1 / T), normalised (Guo et al. 2017, "On Calibration of Modern Neural Networks").

One temperature per question type. It never changes which answer is on top, so it can make a confidence honest but
cannot make an answer better or worse.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from openjev_server.questions import Choice, Noul, Question

__all__ = ["KINDS", "TemperatureScaling", "kind_of", "rescale"]

KINDS = ("choice", "noul", "score")
# Far below any probability that is printed; it keeps an exact zero a (very small) probability.
FLOOR = 1e-12


def kind_of(question: Question) -> str:
    """The question's type as the wire calls it."""
    match question:
        case Noul():
            return "noul"
        case Choice():
            return "choice"
        case _:
            return "score"


def rescale(probabilities: Sequence[float] | NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """Probabilities at a temperature, float64 [n], summing to 1."""
    logits = np.log(np.maximum(np.asarray(probabilities, np.float64), FLOOR)) / temperature
    weights = np.exp(logits - logits.max())
    scaled: NDArray[np.float64] = weights / weights.sum()
    return scaled


@dataclass(frozen=True)
class TemperatureScaling:
    """A temperature per question type, `KINDS` all present, each > 0."""

    temperatures: Mapping[str, float]

    @cached_property
    def hash(self) -> str:
        text = json.dumps({kind: self.temperatures[kind] for kind in KINDS})
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    def apply(self, question: Question, probabilities: Sequence[float]) -> Sequence[float]:
        """Calibrated probabilities in question order."""
        scaled: list[float] = rescale(probabilities, self.temperatures[kind_of(question)]).tolist()
        return scaled
