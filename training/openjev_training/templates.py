"""Decisions written by rule, with certain labels: records, thresholds, dates, policies, logs, tickets with routing.

The wordings are ours; they teach reading a criterion and applying it, not a topic.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import date, timedelta
from itertools import pairwise

from openjev_server.questions import Choice, Noul, Option, Score, Text

from .augment import random_names
from .examples import Example, Labelled, one_hot
from .tickets import ticket

__all__ = ["draw"]

# fmt: off
_NAMES = [
    "Ana", "Ben", "Carla", "Dmitri", "Emma", "Farid", "Grace", "Hugo", "Ines", "Jonas", "Kavya", "Liam", "Mona",
    "Noah", "Olga", "Pavel", "Quinn", "Rosa", "Samir", "Tara", "Uma", "Victor", "Wanda", "Xin", "Yusuf", "Zoe",
]
_CITIES = [
    "Lisbon", "Oslo", "Denver", "Osaka", "Lagos", "Cairo", "Madrid", "Toronto", "Berlin", "Austin", "Lyon",
    "Quito", "Pune", "Perth", "Dublin", "Seoul",
]
_ITEMS = [
    "laptop", "desk lamp", "office chair", "phone case", "water bottle", "backpack", "monitor", "keyboard",
    "coffee maker", "running shoes", "headphones", "tent", "jacket", "camera", "blender", "bike helmet",
]
# fmt: on
_STATUS = ("shipped", "pending", "cancelled", "delivered", "returned", "on hold")
# fmt: off
_SERVICES = [
    "auth", "payments", "search", "billing-api", "gateway", "cache", "mailer", "scheduler", "inventory",
    "checkout",
]
# fmt: on


def _yes(text: str, truth: bool, true: Text | None = None, false: Text | None = None) -> Labelled:
    return Labelled(Noul("q", text, true, false), one_hot(2, 0 if truth else 1))


def _pick(rng: random.Random, text: str | None, options: list[tuple[str, str | None]], right: int) -> Labelled:
    order = list(range(len(options)))
    rng.shuffle(order)
    made = tuple(Option(*options[i]) for i in order)
    return Labelled(Choice("q", text, made), one_hot(len(order), order.index(right)))


def _day(rng: random.Random, value: date) -> str:
    return rng.choice(
        (value.isoformat(), f"{value:%B} {value.day}, {value.year}", f"{value.day} {value:%b} {value.year}")
    )


def _render(rng: random.Random, record: dict[str, object]) -> Text:
    roll = rng.random()
    if roll < 0.3:
        return {k.replace(" ", "_"): v for k, v in record.items()}
    if roll < 0.65:
        return "\n".join(f"{k}: {v}" for k, v in record.items())
    if roll < 0.85:
        return "; ".join(f"{k} {v}" for k, v in record.items())
    return json.dumps(record)


def order_record(rng: random.Random) -> Example:
    """One record and questions about its fields: equality, thresholds, buckets, elimination."""
    amount = rng.choice([rng.randrange(5, 99), rng.randrange(100, 999), rng.randrange(1000, 9999)])
    status, item, city, name = rng.choice(_STATUS), rng.choice(_ITEMS), rng.choice(_CITIES), rng.choice(_NAMES)
    count, age = rng.randrange(1, 13), rng.randrange(1, 120)
    record: dict[str, object] = {"order": f"#{rng.randrange(1000, 99999)}", "customer": name, "item": item}
    record |= {"quantity": count, "amount": f"${amount}", "status": status, "city": city, "days since purchase": age}
    keys = list(record)
    rng.shuffle(keys)
    for key in keys[: rng.randrange(0, 2)]:
        if key == "order":
            record.pop(key)
    limit = max(1, amount + rng.choice([-1, 1]) * rng.choice([1, 5, 10, 50, 100, 400]))
    days = max(1, age + rng.choice([-1, 1]) * rng.choice([1, 3, 10, 30]))
    other = rng.choice([s for s in _STATUS if s != status])
    claims = [
        _yes(
            rng.choice(("Is the amount above ${}?", "The order costs more than ${}.", "Amount > ${}")).format(limit),
            amount > limit,
        ),
        _yes(rng.choice(("Is the amount below ${}?", "The order costs less than ${}.")).format(limit), amount < limit),
        _yes(f"Was the purchase made within the last {days} days?", age <= days),
        _yes(
            "Can this be returned?", age <= days, f"bought at most {days} days ago", f"bought more than {days} days ago"
        ),
        _yes("Does this need a manager?", amount > limit, f"the amount is over ${limit}", "otherwise"),
        _yes(f"Is the status {status}?" if rng.random() < 0.5 else f"Is the status {other}?", True),
        _yes(f"The order is not {other}.", True),
        _yes(f"The order is not {status}.", False),
        _yes(f"Did {rng.choice([name, rng.choice(_NAMES)])} place this order?", True),
    ]
    text = claims[5].question.instructions
    claims[5] = _yes(str(text), status in str(text))
    text = claims[8].question.instructions
    claims[8] = _yes(str(text), f"Did {name} " in str(text))
    cuts = sorted(rng.sample([20, 50, 100, 200, 500, 1000, 2000, 5000], 2))
    bucket = 0 if amount < cuts[0] else 1 if amount < cuts[1] else 2
    ranges = (f"under ${cuts[0]}", f"from ${cuts[0]} to ${cuts[1]}", f"${cuts[1]} or more")
    labels = rng.choice((["small", "medium", "large"], ["low value", "mid value", "high value"], random_names(rng, 3)))
    levels = (f"under {cuts[0]}", f"{cuts[0]} to {cuts[1]}", f"over {cuts[1]}")
    picks = [
        _pick(
            rng,
            rng.choice(("Which size class is the order?", "Choose the bucket for the amount.")),
            list(zip(labels, ranges, strict=True)),
            bucket,
        ),
        Labelled(Score("q", rng.choice(("How large is the amount?", "Amount level")), levels), one_hot(3, bucket)),
        _pick(
            rng,
            "What is the status?",
            [(s, None) for s in (status, *[s for s in _STATUS if s != status][: rng.randrange(1, 5)])],
            0,
        ),
        _pick(
            rng,
            "Which item was ordered?",
            [(i, None) for i in (item, *[i for i in rng.sample(_ITEMS, 5) if i != item][: rng.randrange(1, 5)])],
            0,
        ),
        _pick(
            rng,
            "Where does the customer live?",
            [(c, None) for c in (city, *[c for c in rng.sample(_CITIES, 5) if c != city][: rng.randrange(1, 4)])],
            0,
        ),
    ]
    return Example(_render(rng, record), tuple(rng.sample(claims + picks, rng.choice([1, 2, 3, 5]))))


def dates(rng: random.Random) -> Example:
    """Today, a deadline and an event: before, after, overdue, how soon."""
    today = date(2023, 1, 1) + timedelta(days=rng.randrange(900))
    gap = rng.choice([-40, -12, -3, -1, 1, 2, 5, 6, 10, 20, 29, 45, 100])
    due = today + timedelta(days=gap)
    subject = rng.choice(
        ("The invoice", "The report", "The library book", "The visa application", "The subscription payment")
    )
    state = rng.choice(
        (
            f"Today is {_day(rng, today)}. {subject} is due on {_day(rng, due)}.",
            f"date: {today.isoformat()}\ndue: {due.isoformat()}\nsubject: {subject}",
            f"{subject} must be in by {_day(rng, due)}. (written on {_day(rng, today)})",
        )
    )
    level = 0 if gap < 0 else 1 if gap <= 7 else 2 if gap <= 30 else 3
    names = ("overdue", "due within a week", "due within a month", "due later")
    items = [
        _yes(rng.choice(("Is it overdue?", "Has the deadline passed?", "The due date is in the past.")), gap < 0),
        _yes(rng.choice(("Is the deadline still ahead?", "There is still time.")), gap > 0),
        _yes("Is it due within seven days?", 0 <= gap <= 7),
        _pick(
            rng, rng.choice(("How soon is it due?", "Choose the deadline class.")), [(n, None) for n in names], level
        ),
        Labelled(Score("q", "How much time is left?", names), one_hot(4, level)),
    ]
    return Example(state, tuple(rng.sample(items, rng.choice([1, 2, 3]))))


def policy(rng: random.Random) -> Example:
    """A rule and a case: does the rule allow it?"""
    limit = rng.choice([7, 10, 14, 30, 60, 90])
    days = max(1, limit + rng.choice([-6, -3, -1, 0, 1, 4, 15]))
    opened = rng.random() < 0.4
    name, item = rng.choice(_NAMES), rng.choice(_ITEMS)
    strict = rng.random() < 0.5
    rule = f"Returns are accepted within {limit} days of delivery" + (
        ", only if the package is unopened." if strict else "."
    )
    case = f"{name} received the {item} {days} days ago and {'has opened' if opened else 'has not opened'} the package."
    ok = days <= limit and not (strict and opened)
    extra = rng.choice(
        ("", f" {name} lives in {rng.choice(_CITIES)}.", " The customer is polite.", " Payment was by card.")
    )
    state: Text = f"{rule}\n{case}{extra}" if rng.random() < 0.5 else {"policy": rule, "case": case + extra}
    items = [
        _yes(
            rng.choice(("Is the return allowed?", f"{name} may return the {item}.", "Should the return be accepted?")),
            ok,
        ),
        _yes("Should the return be refused?", not ok),
        _pick(
            rng,
            "What should happen?",
            [("accept", "the rule allows the return"), ("refuse", "the rule does not allow it")],
            0 if ok else 1,
        ),
        _yes(f"Was it delivered more than {limit} days ago?", days > limit),
    ]
    if rng.random() < 0.3:
        state = case + extra
        items = [_yes("Is the return allowed?", ok, rule, "anything else")]
    return Example(state, tuple(rng.sample(items, min(len(items), rng.choice([1, 2])))))


def comparison(rng: random.Random) -> Example:
    """Several named amounts: largest, smallest, order, sum against a limit, counting."""
    count = rng.choice([2, 3, 4, 5])
    names = rng.sample(_NAMES, count)
    values = rng.sample(range(1, rng.choice([30, 100, 1000])), count)
    what, unit = rng.choice(
        (("scored", "points"), ("paid", "dollars"), ("ran", "km"), ("sold", "tickets"), ("waited", "minutes"))
    )
    lines = [f"{n} {what} {v} {unit}." for n, v in zip(names, values, strict=True)]
    state = (" " if rng.random() < 0.6 else "\n").join(lines)
    top, low = values.index(max(values)), values.index(min(values))
    a, b = rng.sample(range(count), 2)
    options: list[tuple[str, str | None]] = [(n, None) for n in names]
    cut = rng.choice(values) + rng.choice([-2, 2])
    above = sum(v > cut for v in values)
    items = [
        _pick(rng, rng.choice((f"Who {what} the most?", "Who has the highest number?")), options, top),
        _pick(rng, rng.choice((f"Who {what} the least?", "Who has the lowest number?")), options, low),
        _yes(f"{names[a]} {what} more than {names[b]}.", values[a] > values[b]),
        _yes(
            f"Did {names[a]} {rng.choice(['have fewer', 'have less'])} {unit} than {names[b]}?", values[a] < values[b]
        ),
        _yes(f"At least one of them {what} more than {cut} {unit}.", above > 0),
        _pick(
            rng, f"How many of them {what} more than {cut} {unit}?", [(str(i), None) for i in range(count + 1)], above
        ),
        _pick(rng, f"Which number belongs to {names[a]}?", [(str(v), None) for v in values], a),
    ]
    return Example(state, tuple(rng.sample(items, rng.choice([1, 2, 3]))))


def log_lines(rng: random.Random) -> Example:
    """A log: severity, service, whether something failed, how often."""
    count = rng.choice([1, 2, 4, 8, 15])
    levels = ("DEBUG", "INFO", "WARN", "ERROR")
    good = ("request completed in {n}ms", "cache refreshed", "user {n} signed in", "job {n} finished", "heartbeat ok")
    odd = ("retrying connection ({n})", "slow query: {n}ms", "disk {n}% full", "token expires soon")
    bad = (
        "connection refused",
        "timeout after {n}s",
        "out of memory",
        "unhandled exception in worker {n}",
        "payment declined by gateway",
    )
    lines, seen = [], []
    for i in range(count):
        level = rng.choices(levels, (2, 5, 2, 1.5))[0]
        text = rng.choice(bad if level == "ERROR" else odd if level == "WARN" else good).format(n=rng.randrange(2, 99))
        service = rng.choice(_SERVICES)
        seen.append((level, service))
        when = f"2024-03-{rng.randrange(10, 28)}T{rng.randrange(10, 23)}:{10 + i}:0{rng.randrange(9)}Z"
        lines.append(f"{when} {level} {service} {text}")
    errors = sum(level == "ERROR" for level, _ in seen)
    worst = max(levels.index(level) for level, _ in seen)
    names = ("nothing notable", "normal operation", "needs attention", "failure")
    items = [
        _yes(
            rng.choice(("Is there an error in the log?", "Something failed.", "Does the log show a failure?")),
            errors > 0,
        ),
        _yes("Everything works normally.", worst <= 1),
        Labelled(Score("q", rng.choice(("How severe is the worst entry?", "Severity")), names), one_hot(4, worst)),
        _pick(rng, "What is the highest severity?", [(level.lower(), None) for level in levels], worst),
        _pick(rng, "How many errors are there?", [("none", None), ("one", None), ("several", None)], min(errors, 2)),
    ]
    if count == 1:
        others = [s for s in rng.sample(_SERVICES, 4) if s != seen[0][1]][:3]
        items.append(_pick(rng, "Which service wrote this?", [(s, None) for s in (seen[0][1], *others)], 0))
    failing = [service for level, service in seen if level == "ERROR"]
    if errors == 1:
        others = [s for s in rng.sample(_SERVICES, 5) if s != failing[0]][:3]
        items.append(_pick(rng, "Which service failed?", [(s, None) for s in (failing[0], *others)], 0))
    return Example("\n".join(lines), tuple(rng.sample(items, rng.choice([1, 2, 3]))))


def grades(rng: random.Random) -> Example:
    """A measured value and a rubric of ordered levels with stated ranges."""
    what, unit, top = rng.choice(
        (
            ("wait", "minutes", 60),
            ("temperature", "degrees", 40),
            ("test score", "percent", 100),
            ("delay", "hours", 48),
            ("battery", "percent", 100),
            ("typos", "typos", 20),
            ("distance", "km", 50),
        )
    )
    count = rng.choice([2, 3, 4, 5])
    cuts = sorted(rng.sample(range(2, top), count - 1))
    value = rng.randrange(0, top + 10)
    level = sum(value >= c for c in cuts)
    edges = [0, *cuts]
    texts = [f"{a} to {b - 1} {unit}" for a, b in pairwise(edges)] + [f"{cuts[-1]} {unit} or more"]
    filler = rng.choice(
        ("", "The room was quiet. ", "Everyone agreed it was a long day. ", f"{rng.choice(_NAMES)} wrote this down. ")
    )
    state = f"{filler}{rng.choice(('Measured', 'Observed', 'Reported'))} {what}: {value} {unit}."
    if rng.random() < 0.6:
        return Example(state, (Labelled(Score("q", f"Grade the {what}.", tuple(texts)), one_hot(count, level)),))
    options: list[tuple[str, str | None]] = list(zip(random_names(rng, count), texts, strict=True))
    return Example(state, (_pick(rng, f"Which class does the {what} fall in?", options, level),))


def draw(rng: random.Random) -> Example:
    """One example of any kind; tickets, which cover most everyday wordings, come most often."""
    makers: tuple[Callable[[random.Random], Example], ...] = (
        order_record,
        dates,
        policy,
        comparison,
        log_lines,
        grades,
        ticket,
    )
    return rng.choices(makers, (2.0, 0.8, 1.0, 1.2, 1.0, 0.8, 4.0))[0](rng)
