"""Amounts, dates and thresholds in running text: which of several numbers a question is about, and how it compares."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta

from openjev_server.questions import Choice, Noul, Option, Score

from .examples import Example, Labelled, one_hot

__all__ = ["budget", "deadline", "draw", "eligible", "unit_price"]

_WHO = ("Ada", "Bo", "Cem", "Dana", "Eli", "Fay", "Gus", "Hal")


def _yes(text: str, truth: bool, true: str | None = None, false: str | None = None) -> Labelled:
    return Labelled(Noul("q", text, true, false), one_hot(2, 0 if truth else 1))


def _near(rng: random.Random, value: int) -> int:
    """A threshold near a value, on it one time in five."""
    return max(1, value + rng.choice([0, -1, 1, -max(1, value // 10), max(1, value // 10)]))


def _money(rng: random.Random, value: int) -> str:
    return rng.choice((f"${value:,}", f"{value} dollars", f"USD {value}", f"${value}.00"))


def _day(rng: random.Random, value: date) -> str:
    return rng.choice((value.isoformat(), f"{value:%d %B %Y}", f"{value:%B} {value.day}, {value.year}"))


def budget(rng: random.Random) -> Example:
    """Three amounts, of which one is asked about: at least, at most, over, under, between."""
    quote, spent, limit = (rng.randrange(20, 9000) for _ in range(3))
    state = (
        f"{rng.choice(_WHO)} asks for {_money(rng, quote)} for the new shelves. So far {_money(rng, spent)} were spent"
        f" this year, and the plan allows {_money(rng, limit)} in all."
    )
    cut = _near(rng, quote)
    low, high = sorted((_near(rng, quote), quote + rng.randrange(5, 500)))
    items = [
        _yes(f"Is at least ${cut} asked for?", quote >= cut),
        _yes(f"Is more than ${cut} asked for?", quote > cut),
        _yes(f"Is the request under ${cut}?", quote < cut),
        _yes(f"Does the request come to ${cut} at most?", quote <= cut),
        _yes(f"Is the sum that is asked for between ${low} and ${high}?", low <= quote <= high),
        _yes("Would the plan still hold if the request were granted?", spent + quote <= limit),
        _yes("Is more asked for than was spent so far?", quote > spent),
        _yes("Sign off?", quote <= cut, f"the request is ${cut} or less", f"the request is above ${cut}"),
    ]
    return Example(state, tuple(rng.sample(items, rng.choice([1, 2, 3]))))


def deadline(rng: random.Random) -> Example:
    """When something was sent, due and received; counted in days, with the last day included."""
    sent = date(2024, 1, 1) + timedelta(days=rng.randrange(700))
    term = rng.choice([3, 7, 10, 14, 30])
    took = max(0, term + rng.choice([-5, -1, 0, 0, 1, 2, 9]))
    arrived = sent + timedelta(days=took)
    state = rng.choice(
        (
            f"The form went out on {_day(rng, sent)}. It has to be back within {term} days, the last day included."
            f" It came back on {_day(rng, arrived)}.",
            f"sent: {sent.isoformat()}\nback: {arrived.isoformat()}\nterm: {term} days (last day counts)",
        )
    )
    level = 0 if took <= term else 1 if took <= term + 1 else 2
    levels = ("in time", "one day late", "later than that")
    items = [
        _yes("Was it in time?", took <= term),
        _yes("Is it late?", took > term),
        _yes("Did it come back on the very last day?", took == term),
        _yes("Did it take more than two weeks?", took > 14),
        _yes(f"Did both happen in {sent:%B}?", sent.month == arrived.month and sent.year == arrived.year),
        Labelled(Score("q", "How late was it?", levels), one_hot(3, level)),
    ]
    return Example(state, tuple(rng.sample(items, rng.choice([1, 2, 3]))))


def eligible(rng: random.Random) -> Example:
    """Two conditions that must both hold, or one of which is enough."""
    least, top = rng.choice([16, 18, 21, 25]), rng.choice([30, 40, 60, 65])
    age, years = _near(rng, rng.choice([least, top])), rng.randrange(0, 6)
    need = rng.choice([1, 2, 3])
    both = rng.random() < 0.5
    word = "and" if both else "or"
    rule = f"Open to people from {least} to {top} years of age {word} with at least {need} years of practice."
    in_age, practised = least <= age <= top, years >= need
    ok = (in_age and practised) if both else (in_age or practised)
    name = rng.choice(_WHO)
    state = f"{rule}\n{name} is {age} and has {years} years of practice."
    if rng.random() < 0.3:
        state = f"{name} is {age} and has {years} years of practice."
        return Example(state, (_yes("Is the course open to this person?", ok, rule, "anything else"),))
    options = (Option("admit", "the rule is met"), Option("refuse", "the rule is not met"))
    items = [
        _yes(f"May {name} take part?", ok),
        _yes(f"Does the rule shut {name} out?", not ok),
        _yes(f"Is {name} within the ages that the rule names?", in_age),
        _yes(f"Has {name} enough practice?", practised),
        Labelled(Choice("q", "What follows from the rule?", options), one_hot(2, 0 if ok else 1)),
    ]
    return Example(state, tuple(rng.sample(items, rng.choice([1, 2]))))


def unit_price(rng: random.Random) -> Example:
    """Packs of different sizes: which is cheaper by the piece, the class of a price by stated ranges."""
    sizes = rng.sample([2, 4, 5, 10, 20], 2)
    each = [rng.randrange(1, 30) for _ in sizes]
    if each[0] == each[1]:
        each[1] += 1
    first, second = (f"{n} for ${n * p}" for n, p in zip(sizes, each, strict=True))
    state = f"Shop A sells bulbs at {first}, shop B at {second}."
    cheaper = 0 if each[0] < each[1] else 1
    cuts = sorted(rng.sample(range(2, 30), 2))
    price = each[0]
    level = sum(price >= cut for cut in cuts)
    texts = (f"below ${cuts[0]}", f"from ${cuts[0]} to ${cuts[1] - 1}", f"${cuts[1]} and more")
    shops = (Option("A"), Option("B"))
    items = [
        Labelled(Choice("q", "Where is a single bulb cheaper?", shops), one_hot(2, cheaper)),
        _yes("Is a bulb cheaper in shop A?", cheaper == 0),
        _yes(f"Does a bulb cost ${price} in shop A?", True)
        if rng.random() < 0.5
        else _yes(f"Does a bulb cost ${price + rng.choice([1, 2])} in shop A?", False),
        Labelled(Score("q", "Price of one bulb in shop A", texts), one_hot(3, level)),
    ]
    return Example(state, tuple(rng.sample(items, rng.choice([1, 2]))))


def draw(rng: random.Random) -> Example:
    """One example of any kind."""
    makers: tuple[Callable[[random.Random], Example], ...] = (budget, deadline, eligible, unit_price)
    return rng.choice(makers)(rng)
