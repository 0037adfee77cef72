"""Answers: immutable values with their probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from openjev_sdk._frozen import FrozenMapping

__all__ = [
    "Answer",
    "ChoiceAnswer",
    "Decision",
    "Model",
    "NoulAnswer",
    "ScoreAnswer",
    "UnknownAnswer",
    "Usage",
    "choice_confidence",
    "score_confidence",
]


@dataclass(frozen=True, slots=True)
class NoulAnswer:
    """The answer to a yes/no question."""

    probability: float
    """Of yes, 0 to 1."""

    @property
    def value(self) -> bool:
        """Yes at 0.5 and above."""
        return self.probability >= 0.5

    @property
    def confidence(self) -> float:
        """Probability of the likelier side, 0.5 to 1."""
        return max(self.probability, 1 - self.probability)

    def decided(self, min_confidence: float) -> bool | None:
        """The value if its confidence reaches `min_confidence`, else None."""
        return self.value if self.confidence >= min_confidence else None


@dataclass(frozen=True, slots=True)
class ChoiceAnswer:
    """The answer to a choice."""

    choice: str
    """The likeliest option."""
    confidence: float
    """0 (all options alike) to 1; from the probabilities where the host does not send it."""
    probabilities: FrozenMapping[str, float]
    """Per option, in the order in which the host sent them."""

    @property
    def value(self) -> str:
        """The likeliest option."""
        return self.choice

    def decided(self, min_confidence: float) -> str | None:
        """The value if its confidence reaches `min_confidence`, else None."""
        return self.choice if self.confidence >= min_confidence else None


@dataclass(frozen=True, slots=True)
class ScoreAnswer:
    """The answer to a score."""

    score: float
    """The expected level: 0 (the first) to the number of levels - 1."""
    confidence: float
    """0 to 1; from the probabilities where the host does not send it."""
    legend: FrozenMapping[int, Any]
    """The levels as they were asked."""
    probabilities: FrozenMapping[int, float]
    """Per level."""

    @property
    def value(self) -> float:
        """The expected level."""
        return self.score

    @property
    def level(self) -> int:
        """The likeliest level (of equals the lowest); the one nearest to the score where no probabilities came."""
        return max(self.probabilities, key=self.probabilities.__getitem__) if self.probabilities else round(self.score)

    def decided(self, min_confidence: float) -> float | None:
        """The value if its confidence reaches `min_confidence`, else None."""
        return self.score if self.confidence >= min_confidence else None


@dataclass(frozen=True, slots=True)
class UnknownAnswer:
    """An answer of a type that this version does not know."""

    type: str
    """What the host calls it; empty when it does not say."""
    raw: Mapping[str, Any] = field(hash=False)
    """The answer as sent."""
    value: None = field(default=None, init=False)
    confidence: None = field(default=None, init=False)

    def decided(self, min_confidence: float) -> None:
        """None: nobody knows what it says."""
        return


Answer = NoulAnswer | ChoiceAnswer | ScoreAnswer | UnknownAnswer
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request; None where the host does not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a host offers."""

    name: str
    description: str | None = None
    release_date: str | None = None


@dataclass(frozen=True, slots=True)
class Decision(Mapping[str, Answer]):
    """All answers to one request, a mapping of question ids to answers in the order of the response."""

    answers: FrozenMapping[str, Answer]
    model: str
    """The model that answered, not the alias that was asked for."""
    usage: Usage
    request_id: str | None
    """The host's id of the request."""
    fingerprint: str | None
    """What exactly computed it; None on hosts other than OpenJev."""
    timing: FrozenMapping[str, float]
    """Milliseconds per phase, from `Server-Timing`; empty when the host does not say."""
    raw: Mapping[str, Any] = field(repr=False, hash=False)
    """The body as sent."""
    calibration: str | None = None
    """Which calibration the probabilities went through, `none` where the host has none for the layout and steps that
    were asked for; None on hosts other than OpenJev."""

    def __getitem__(self, name: str) -> Answer:
        return self.answers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def nouls(self) -> FrozenMapping[str, NoulAnswer]:
        """The answers to yes/no questions."""
        return self._of(NoulAnswer)

    @property
    def choices(self) -> FrozenMapping[str, ChoiceAnswer]:
        """The answers to choices."""
        return self._of(ChoiceAnswer)

    @property
    def scores(self) -> FrozenMapping[str, ScoreAnswer]:
        """The answers to scores."""
        return self._of(ScoreAnswer)

    def _of(self, kind: type[A]) -> FrozenMapping[str, A]:
        return FrozenMapping({name: answer for name, answer in self.answers.items() if isinstance(answer, kind)})


def choice_confidence(probabilities: Sequence[float]) -> float:
    """(max p - 1/n) / (1 - 1/n); 1 for a single option. The API's documented formula."""
    n = len(probabilities)
    return 1.0 if n == 1 else max(0.0, (max(probabilities) - 1 / n) / (1 - 1 / n))


def score_confidence(probabilities: Sequence[float]) -> float:
    """1 - (mean distance from the likeliest level) / (that of a uniform distribution from its middle), at least 0.

    The API's formula, as its recorded answers show it; 1 for a single level.
    """
    n = len(probabilities)
    if n == 1:
        return 1.0
    mode = probabilities.index(max(probabilities))
    spread = sum(p * abs(level - mode) for level, p in enumerate(probabilities))
    return max(0.0, 1 - spread / (sum(abs(level - (n - 1) / 2) for level in range(n)) / n))
