"""Yes/no questions made of plain texts: is a sentence well formed, is a claim supported, is something rare there?

The texts are those behind the wall (`prepare` filters them through `rows.Guard`), and the wordings are ours. A sentence
that is changed keeps its words where it can, so that only reading tells it from the one that was written.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

from openjev_server.questions import Noul, Text

from .examples import Example, Labelled, one_hot

__all__ = ["claim", "draw", "plant", "rare", "spoil", "supported", "well_formed"]

Docs = Sequence[Sequence[str]]
"""Texts as sentences."""

_GOOD = (
    "Is this correct English?",
    "Is the sentence free of mistakes in grammar and spelling?",
    "Could this be printed as it stands?",
    "Are the words in a possible order?",
    "A teacher would accept this sentence.",
    "Is it written without errors?",
)
_BAD = (
    "Does this need a correction?",
    "Is there a mistake in the sentence?",
    "Something is wrong with the grammar or the spelling here.",
    "Should an editor change this line?",
)
_SUPPORTED = (
    'Does the passage say so: "{}"',
    'According to the text: "{}"',
    'Is this what the text says? "{}"',
    'A reader of the passage can be sure: "{}"',
    'The passage backs this up: "{}"',
)
_CONTRADICTED = (
    'Does the passage say otherwise than this: "{}"',
    'Is this a wrong report of the text? "{}"',
    'The passage does not support this: "{}"',
)
RARE_SHARE = 0.12
"""Share of yes where the question asks for something that is seldom there."""

_AGREEMENT = {"is": "are", "are": "is", "was": "were", "were": "was", "has": "have", "have": "has", "does": "do"}
_ARTICLES = {"a", "an", "the", "to", "of", "in"}


def _words(sentence: str) -> list[str]:
    return sentence.split(" ")


def spoil(rng: random.Random, sentence: str) -> str | None:
    """The sentence with one mistake that a careful reader sees; None where none can be made for sure."""
    words = _words(sentence)
    if len(words) < 5:
        return None
    makers: list[Callable[[], list[str] | None]] = [
        lambda: _replaced(rng, words, _AGREEMENT.get),
        lambda: _replaced(rng, words, lambda w: f"{w} {w}" if w.lower() in _ARTICLES else None),
        lambda: _replaced(rng, words, _misspelt),
        lambda: _swapped(rng, words),
        lambda: _dropped(rng, words),
    ]
    rng.shuffle(makers)
    for make in makers:
        made = make()
        if made is not None and (out := " ".join(made)) != sentence:
            return out
    return None


def _replaced(rng: random.Random, words: Sequence[str], change: Callable[[str], str | None]) -> list[str] | None:
    places = [i for i, w in enumerate(words) if change(w) is not None]
    if not places:
        return None
    place = rng.choice(places)
    return [*words[:place], str(change(words[place])), *words[place + 1 :]]


def _misspelt(word: str) -> str | None:
    """The two letters in the middle changed places."""
    if not re.fullmatch(r"[a-z]{6,}", word):
        return None
    middle = len(word) // 2
    if word[middle - 1] == word[middle]:
        return None
    return word[: middle - 1] + word[middle] + word[middle - 1] + word[middle + 1 :]


def _swapped(rng: random.Random, words: Sequence[str]) -> list[str] | None:
    """A short function word and the word after it changed places: `the house` -> `house the`."""
    places = [i for i in range(len(words) - 1) if words[i] in _ARTICLES and re.fullmatch(r"[a-z]{3,}", words[i + 1])]
    if not places:
        return None
    place = rng.choice(places)
    return [*words[:place], words[place + 1], words[place], *words[place + 2 :]]


def _dropped(rng: random.Random, words: Sequence[str]) -> list[str] | None:
    """A verb that the sentence cannot do without."""
    places = [i for i, w in enumerate(words) if w in _AGREEMENT and i > 0]
    if not places:
        return None
    place = rng.choice(places)
    return [*words[:place], *words[place + 1 :]]


def well_formed(rng: random.Random, docs: Docs) -> Example | None:
    """One sentence, half of the time with a mistake."""
    sentence = rng.choice(rng.choice(docs))
    if not re.match(r"[A-Z].{20,200}[.?!]$", sentence) or ":" in sentence:
        return None
    spoilt = spoil(rng, sentence)
    if spoilt is None:
        return None
    good = rng.random() < 0.5
    shown = sentence if good else spoilt
    if rng.random() < 0.2:  # a headline or a query is no mistake: capitals and the end's mark say nothing
        shown = shown.lower().rstrip(".?!")
    ask_good = rng.random() < 0.6
    question = Noul("q", rng.choice(_GOOD if ask_good else _BAD))
    return Example(shown, (Labelled(question, one_hot(2, 0 if good == ask_good else 1)),))


_NUMBER = re.compile(r"\b\d{1,4}\b")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b")
_OPPOSITE = {
    "before": "after", "after": "before", "more": "less", "less": "more", "first": "last", "last": "first",
    "always": "never", "never": "always", "above": "below", "below": "above", "with": "without", "without": "with",
    "increased": "decreased", "decreased": "increased", "all": "none of", "can": "cannot", "cannot": "can",
    "is": "is not", "was": "was not", "are": "are not", "were": "were not", "will": "will not",
}  # fmt: skip


def claim(rng: random.Random, sentence: str, passage: str) -> str | None:
    """The sentence with one fact changed: a number, a name of the passage, or the sense; None where there is none."""
    kinds = ["number", "name", "sense"]
    rng.shuffle(kinds)
    for kind in kinds:
        if kind == "number" and (numbers := list(_NUMBER.finditer(sentence))):
            found = rng.choice(numbers)
            other = str(max(0, int(found[0]) + rng.choice([-10, -3, -2, -1, 1, 2, 3, 10])))
            made = sentence[: found.start()] + other + sentence[found.end() :]
        elif kind == "name" and (names := list(_NAME.finditer(sentence))):
            found = rng.choice(names)
            others = sorted({n for n in _NAME.findall(passage) if n not in sentence})
            if not others:
                continue
            made = sentence[: found.start()] + rng.choice(others) + sentence[found.end() :]
        elif kind == "sense" and (places := [w for w in _words(sentence) if w in _OPPOSITE]):
            word = rng.choice(places)
            made = re.sub(rf"\b{word}\b", _OPPOSITE[word], sentence, count=1)
        else:
            continue
        if made != sentence and made not in passage:
            return made
    return None


def supported(rng: random.Random, docs: Docs) -> Example | None:
    """A passage and a claim that is one of its sentences, or one with a fact changed."""
    doc = [s for s in rng.choice(docs) if len(s) < 300]
    if len(doc) < 2:
        return None
    start = rng.randrange(len(doc))
    shown = doc[start : start + rng.choice([1, 3, 6, 12])]
    passage = " ".join(shown)
    sentence = rng.choice(shown)
    changed = claim(rng, sentence, passage)
    if changed is None or len(sentence) < 20 or sentence.endswith("?") or re.match(r"\w+: ", sentence):
        return None
    true = rng.random() < 0.5
    asked = (sentence if true else changed).replace('"', "'")
    ask_true = rng.random() < 0.7
    wording = rng.choice(_SUPPORTED if ask_true else _CONTRADICTED)
    return Example(passage, (Labelled(Noul("q", wording.format(asked)), one_hot(2, 0 if true == ask_true else 1)),))


def _digits(rng: random.Random, count: int) -> str:
    return "".join(str(rng.randrange(10)) for _ in range(count))


_FIRST = ("Lena", "Omar", "Petra", "Jun", "Ruth", "Ivo", "Nadia", "Carl")
_PLANTS: dict[str, tuple[tuple[str, ...], Callable[[random.Random], str]]] = {
    "phone": (
        ("Does the text give away a phone number?", "Is there a number to call?"),
        lambda r: f"You can reach me at {_digits(r, 3)}-{_digits(r, 4)}-{_digits(r, 3)}.",
    ),
    "mail": (
        ("Does it contain an e-mail address?", "Could one write to somebody named here by e-mail?"),
        lambda r: f"Write to {r.choice(_FIRST).lower()}{_digits(r, 2)}@example.org for more.",
    ),
    "card": (
        ("Is a payment card's number in the text?", "Would a payment card have to be blocked after this message?"),
        lambda r: f"The card is {' '.join(_digits(r, 4) for _ in range(4))}, valid until 0{r.randrange(1, 10)}/29.",
    ),
    "password": (
        ("Does the writer reveal a password?", "Is a secret for signing in written here?"),
        lambda r: f"My password is {r.choice(('sunny', 'Tiger', 'oak', 'blue'))}{_digits(r, 4)}, just sign in.",
    ),
    "threat": (
        ("Does anybody threaten somebody?", "Does the text announce harm to a person?"),
        lambda r: r.choice(
            (
                "I know where you live, and you will be sorry.",
                "If you come here again I will break your windows.",
                "Wait until I find you, it will hurt.",
            )
        ),
    ),
    "insult": (
        ("Is somebody insulted?", "Does the writer call a person names?"),
        lambda r: r.choice(
            ("You are a complete idiot.", "What a stupid, useless man he is.", "Only a fool like you would ask that.")
        ),
    ),
    "emergency": (
        ("Does somebody need help at once?", "Would you call an ambulance or the fire brigade?"),
        lambda r: r.choice(
            (
                "There is smoke in the hall and I cannot get out!",
                "He fell and does not breathe, please send someone!",
                "Her arm bleeds badly, what shall I do?",
            )
        ),
    ),
    "money": (
        ("Does a stranger ask for money?", "Is the reader asked to pay for something that was never ordered?"),
        lambda r: f"Transfer {r.randrange(2, 90)}0 dollars today, or your account will be closed for good.",
    ),
}


def plant(rng: random.Random, kind: str) -> str:
    """A sentence in which there is what the questions of `kind` ask for. Raises KeyError for another kind."""
    return _PLANTS[kind][1](rng)


def rare(rng: random.Random, docs: Docs) -> Example | None:
    """A text and up to four questions that are seldom answered with yes: what they ask for is planted, or is not there.

    One that is not asked for may be planted too: a number of a card is no number to call.
    """
    doc = rng.choice(docs)
    start = rng.randrange(len(doc))
    parts = list(doc[start : start + rng.choice([1, 2, 4, 8])])
    if any(re.search(r"@|\d{3}|[Pp]assword|kill|hurt|idiot|stupid|fool|blood|fire|\$", p) for p in parts):
        return None  # it might be there already
    asked = rng.sample(sorted(_PLANTS), rng.choice([1, 2, 3, 4]))
    there = {kind for kind in asked if rng.random() < RARE_SHARE}
    if rng.random() < 0.25:
        other = rng.choice(sorted(_PLANTS))
        there |= {other} if other not in asked else set()
    for kind in sorted(there):
        parts.insert(rng.randrange(len(parts) + 1), plant(rng, kind))
    state: Text = " ".join(parts)
    items = [Labelled(Noul("q", rng.choice(_PLANTS[kind][0])), one_hot(2, 0 if kind in there else 1)) for kind in asked]
    return Example(state, tuple(items))


def draw(rng: random.Random, docs: Docs) -> Example | None:
    """One example of any kind; None where a text did not lend itself."""
    return rng.choice((well_formed, supported, supported, rare))(rng, docs)
