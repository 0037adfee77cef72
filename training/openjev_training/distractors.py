"""Metadata that names options: what a footer says about another matter must not decide this one.

The name is that of a wrong option three times in four and of any option otherwise, so that neither "the option that is
named" nor "never the option that is named" is a rule. The wordings are not those of the routing measure.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from openjev_server.questions import Choice, Text

from .examples import Example

__all__ = ["misled"]

_ONE = (
    "forwarded by: {a}",
    "(cc {a})",
    "seen earlier today by {a}",
    "related article: {a}",
    "suggested by the old rules: {a} (not checked)",
    "other open request of this person: {a}",
    "last month's survey: {a}, {n} of 10",
    "breadcrumbs: home > {a} > write to us",
    "Sent via the form for {a}",
    "queue before the merger: {a}",
    "{n} similar messages went to {a} last week",
)
_TWO = (
    "watchers: {a}; {b}",
    "earlier visits: {a} ({n}), {b} ({m})",
    "page history: {a} | {b}",
    "draft labels, unconfirmed: {a} / {b}",
    "visited before writing: {a}, then {b}",
    "{a}: {n} unread, {b}: {m} unread",
)
_FIELDS = ("referrer", "previous_ticket", "mailing_list", "opened_from", "import_hint", "former_label")
LONGEST_NAME = 60
"""A longer name is a text of its own: nobody's metadata quotes it."""


def _named(rng: random.Random, names: Sequence[str], right: int) -> str:
    wrong = [name for i, name in enumerate(names) if i != right]
    return rng.choice(wrong) if rng.random() < 0.75 else rng.choice(names)


def misled(rng: random.Random, example: Example) -> Example:
    """The example with a line or a field that names options of its first choice with a sure answer; else unchanged."""
    for item in example.items:
        if not isinstance(item.question, Choice) or max(item.target) < 1 or len(item.target) < 2:
            continue
        names = [str(option.name) for option in item.question.options]
        if max(map(len, names)) > LONGEST_NAME:
            continue
        right = item.target.index(max(item.target))
        return Example(_marked(rng, example.state, names, right), example.items)
    return example


def _marked(rng: random.Random, state: Text, names: Sequence[str], right: int) -> Text:
    if isinstance(state, dict):
        fields = {rng.choice(_FIELDS): _named(rng, names, right)}
        return {**state, **fields} if rng.random() < 0.6 else {**fields, **state}
    if not isinstance(state, str):
        return state
    lines = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        form = rng.choice(_ONE) if rng.random() < 0.6 else rng.choice(_TWO)
        a, b = _named(rng, names, right), _named(rng, names, right)
        lines.append(form.format(a=a, b=b, n=rng.randrange(2, 60), m=rng.randrange(2, 60)))
    block = rng.choice(("\n", "\n", "; ")).join(lines)
    roll = rng.random()
    if roll < 0.65:
        return f"{state}\n{block}"
    if roll < 0.85:
        return f"{block}\n{state}"
    return f"{block}\n{state}\n{rng.choice(_ONE).format(a=_named(rng, names, right), n=rng.randrange(2, 60))}"
