"""What the model is trained on: a state and questions about it with the probability that each answer should get."""

from __future__ import annotations

from dataclasses import dataclass

from openjev_server.questions import Choice, Noul, Option, Question, Score, Text, answer_count

from .rows import Row

__all__ = ["Example", "Labelled", "from_row", "one_hot", "smooth"]


@dataclass(frozen=True, slots=True)
class Labelled:
    """A question and one probability per answer, in the question's order."""

    question: Question
    target: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.target) != answer_count(self.question):
            raise ValueError(f"{len(self.target)} targets for {answer_count(self.question)} answers")


@dataclass(frozen=True, slots=True)
class Example:
    state: Text
    items: tuple[Labelled, ...]


def one_hot(count: int, index: int) -> tuple[float, ...]:
    return tuple(1.0 if i == index else 0.0 for i in range(count))


def smooth(target: tuple[float, ...], amount: float) -> tuple[float, ...]:
    """Moves `amount` of the mass to the uniform distribution."""
    return tuple((1 - amount) * p + amount / len(target) for p in target)


def from_row(row: Row) -> Labelled:
    """The row as it stands in the data: what is measured."""
    target = row.share or one_hot(len(row.names), row.gold)
    match row.kind:
        case "noul":
            return Labelled(Noul("q", row.instructions), target)
        case "score":
            return Labelled(Score("q", row.instructions, row.names), target)
        case "choice":
            options = tuple(Option(n, d) for n, d in zip(row.names, row.descriptions, strict=True))
            return Labelled(Choice("q", row.instructions, options), target)
