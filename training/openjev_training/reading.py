"""Questions that plain text answers by itself: quizzes with explanations, what comes next, what was said, gaps."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from openjev_server.questions import Choice, Noul, Option

from .examples import Example, Labelled, one_hot

__all__ = ["Quiz", "Reader", "parse_quiz"]

_NEXT = (
    "Which comes next?",
    "How does it go on?",
    "Pick the continuation.",
    "What follows?",
    "Which line continues the text?",
)
_SAID = (
    'Does the text contain this sentence: "{}"?',
    'The text says: "{}"',
    'Is this line part of the text: "{}"?',
)
_SAME = ('Does this come from the same text: "{}"?', 'Is this part of the same conversation or passage: "{}"?')
_WORD = (
    "Which of these words appears in the text?",
    "Which word does the text use?",
    "Pick the word that is in the text.",
)
_GAP = ("Which word is missing?", "Fill the gap.", "Which word fits the blank?", "What belongs in the blank?")
_MENTION = ('Does the word "{}" appear in the text?', 'The text mentions "{}".', 'Is "{}" mentioned?')


@dataclass(frozen=True, slots=True)
class Quiz:
    question: str
    options: tuple[str, ...]
    """Empty for yes/no."""
    answer: int
    """An index into the options, or 0 for yes and 1 for no."""
    explanation: str


def parse_quiz(text: str) -> Quiz | None:
    """Reads `question, Options, answer, explanation` texts; None for anything else."""
    head, _, tail = text.partition("\nOptions:\n")
    if tail:
        lines = tail.split("\n")
        options: list[str] = []
        while lines and re.match(r"- |\([A-E]\) ", lines[0]):
            options.append(lines.pop(0))
        while lines and not lines[0].strip():
            lines.pop(0)
        if len(options) < 2 or not lines:
            return None
        answer, explanation = lines[0].strip(), " ".join(lines[1:]).strip()
        plain = [re.sub(r'^(- )?(\([A-H]\) )?(Sentence [AB]: )?"?|"$', "", o).strip() for o in options]
        keys = [re.sub(r"^- ", "", o) for o in options]
        found = [i for i, k in enumerate(keys) if k == answer or k.startswith((f"{answer} ", f"{answer}:"))]
        if len(found) != 1 or len(set(plain)) < len(plain):
            return None
        if {p.lower() for p in plain} == {"yes", "no"}:
            return Quiz(head.strip(), (), 0 if plain[found[0]].lower() == "yes" else 1, explanation)
        return Quiz(head.strip(), tuple(plain), found[0], explanation)
    lines = text.split("\n")
    if len(lines) < 2:
        return None
    answer = lines[1].strip().lower()
    if answer in ("yes", "no"):
        return Quiz(lines[0].strip(), (), 0 if answer == "yes" else 1, " ".join(lines[2:]).strip())
    return None


def _number_quiz(rng: random.Random, text: str) -> Quiz | None:
    """A sum with a numeric answer becomes a choice between numbers near it."""
    lines = text.split("\n")
    if len(lines) < 3 or not re.fullmatch(r"\d{1,6}", lines[1].strip()):
        return None
    value = int(lines[1])
    near = {value + d for d in rng.sample(range(-9, 10), 5)} | {value * 2, value // 2, value + 10}
    wrong = [n for n in near if n != value and n >= 0]
    options = rng.sample(wrong, min(len(wrong), rng.choice([2, 3, 4])))
    options.append(value)
    rng.shuffle(options)
    return Quiz(lines[0], tuple(str(o) for o in options), options.index(value), " ".join(lines[2:]))


def _sentences(text: str) -> tuple[str, ...]:
    parts = re.split(r"(?<=[.!?])\s+(?=[A-Z\"'])|\n+", text)
    return tuple(p.strip() for p in parts if 3 < len(p) < 600)[:60]


class Reader:
    """Draws examples from texts."""

    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        self._quizzes: list[Quiz] = []
        self._sums: list[str] = []
        self._docs: list[tuple[str, ...]] = []
        words: Counter[str] = Counter()
        for source, text in texts:
            if source == "cot":
                quiz = parse_quiz(text)
                if quiz is not None:
                    self._quizzes.append(quiz)
                    continue
                self._sums.append(text)
            parts = _sentences(text)
            if len(parts) >= 2:
                self._docs.append(parts)
                if len(self._docs) % 3 == 0:
                    words.update(set(re.findall(r"[a-z]{4,}", text.lower())))
        self._words = [w for w, c in words.most_common(14000)[150:] if c >= 4] or [
            "river",
            "window",
            "market",
            "engine",
        ]

    @property
    def docs(self) -> Sequence[tuple[str, ...]]:
        """Texts of two sentences and more."""
        return self._docs

    @property
    def counts(self) -> dict[str, int]:
        return {
            "quizzes": len(self._quizzes),
            "docs": len(self._docs),
            "sums": len(self._sums),
            "words": len(self._words),
        }

    def draw(self, rng: random.Random) -> Example | None:
        if self._quizzes and rng.random() < 0.45:
            return self._quiz(rng)
        if not self._docs:
            return None
        return self._passage(rng)

    def _quiz(self, rng: random.Random) -> Example | None:
        quiz: Quiz | None = rng.choice(self._quizzes)
        if self._sums and rng.random() < 0.06:
            quiz = _number_quiz(rng, rng.choice(self._sums))
        if quiz is None:
            return None
        roll = rng.random()
        # With its explanation the question is reading; without it, knowledge.
        state = quiz.explanation if quiz.explanation and roll < 0.6 else "General knowledge."
        question = quiz.question
        if roll > 0.9:
            state, question = (
                quiz.question,
                rng.choice(("Answer the question.", "What is the answer?", "Which is right?")),
            )
        if not quiz.options:
            return Example(state, (Labelled(Noul("q", question), one_hot(2, quiz.answer)),))
        order = list(range(len(quiz.options)))
        rng.shuffle(order)
        options = tuple(Option(quiz.options[i]) for i in order)
        items = [Labelled(Choice("q", question, options), one_hot(len(order), order.index(quiz.answer)))]
        if rng.random() < 0.25:
            picked = quiz.answer if rng.random() < 0.5 else rng.randrange(len(order))
            wording = rng.choice(("{q} Is the answer {o}?", "{q} Answer: {o}", '"{o}" answers: {q}'))
            noul = Noul("q2", wording.format(q=question, o=quiz.options[picked]))
            items.append(Labelled(noul, one_hot(2, 0 if picked == quiz.answer else 1)))
        return Example(state, tuple(items))

    def _passage(self, rng: random.Random) -> Example | None:
        doc = rng.choice(self._docs)
        start = rng.randrange(len(doc) - 1) if len(doc) > 2 else 0
        limit = rng.choice([80, 240, 500, 1000, 1600, 3000])
        end, size = start, 0
        while end < len(doc) - 1 and (end == start or size + len(doc[end]) < limit):
            size += len(doc[end])
            end += 1
        shown = doc[start:end]
        state = ("\n" if rng.random() < 0.3 else " ").join(shown)
        items: list[Labelled] = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            item = rng.choice((self._next, self._said, self._word, self._gap, self._mention, self._same))(
                rng, doc, shown, end
            )
            if item is not None:
                items.append(item)
        if not items:
            return None
        return Example(state, tuple(items))

    def _other(self, rng: random.Random, shown: Sequence[str]) -> str:
        for _ in range(8):
            line = rng.choice(rng.choice(self._docs))
            if line not in shown:
                return line[:300]
        return "Nothing else."

    def _choice(self, rng: random.Random, wording: str, right: str, wrong: list[str]) -> Labelled | None:
        names = [w for w in dict.fromkeys(wrong) if w != right]
        if not names:
            return None
        names.insert(rng.randrange(len(names) + 1), right)
        return Labelled(Choice("q", wording, tuple(Option(n) for n in names)), one_hot(len(names), names.index(right)))

    def _next(self, rng: random.Random, doc: Sequence[str], shown: Sequence[str], end: int) -> Labelled | None:
        wrong = []
        for _ in range(rng.choice([1, 2, 3, 4])):
            near = len(doc) > end + 3 and rng.random() < 0.35
            wrong.append(rng.choice(doc[end + 1 :])[:300] if near else self._other(rng, doc))
        return self._choice(rng, rng.choice(_NEXT), doc[end][:300], wrong)

    def _said(self, rng: random.Random, doc: Sequence[str], shown: Sequence[str], end: int) -> Labelled | None:
        yes = rng.random() < 0.5
        line = rng.choice(shown) if yes else rng.choice((doc[end][:300], self._other(rng, shown)))
        if len(line) > 220 or (not yes and line in " ".join(shown)):
            return None
        return Labelled(Noul("q", rng.choice(_SAID).format(line)), one_hot(2, 0 if yes else 1))

    def _same(self, rng: random.Random, doc: Sequence[str], shown: Sequence[str], end: int) -> Labelled | None:
        yes = rng.random() < 0.5
        line = doc[end] if yes else self._other(rng, doc)
        return Labelled(Noul("q", rng.choice(_SAME).format(line[:220])), one_hot(2, 0 if yes else 1))

    def _wrong_words(self, rng: random.Random, text: str, count: int) -> list[str]:
        lower = text.lower()
        return [w for w in rng.sample(self._words, min(len(self._words), count + 4)) if w not in lower][:count]

    def _word(self, rng: random.Random, doc: Sequence[str], shown: Sequence[str], end: int) -> Labelled | None:
        text = " ".join(shown)
        words = re.findall(r"[A-Za-z]{5,}", text)
        if not words:
            return None
        return self._choice(
            rng, rng.choice(_WORD), rng.choice(words).lower(), self._wrong_words(rng, text, rng.choice([1, 2, 3, 5, 9]))
        )

    def _mention(self, rng: random.Random, doc: Sequence[str], shown: Sequence[str], end: int) -> Labelled | None:
        text = " ".join(shown)
        words = re.findall(r"[A-Za-z]{5,}", text)
        yes = rng.random() < 0.5
        picked = words if yes else self._wrong_words(rng, text, 1)
        if not picked:
            return None
        return Labelled(Noul("q", rng.choice(_MENTION).format(rng.choice(picked))), one_hot(2, 0 if yes else 1))

    def _gap(self, rng: random.Random, doc: Sequence[str], shown: Sequence[str], end: int) -> Labelled | None:
        line = doc[end]
        words = [w for w in re.findall(r"\b[a-z]{4,}\b", line) if len(w) < 20]
        if not words or len(line) > 400:
            return None
        word = rng.choice(words)
        gapped = re.sub(rf"\b{re.escape(word)}\b", "____", line, count=1)
        wrong = self._wrong_words(rng, line, rng.choice([1, 2, 3, 4]))
        return self._choice(rng, f"{rng.choice(_GAP)} {gapped}", word, wrong)
