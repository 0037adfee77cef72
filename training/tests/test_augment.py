"""Changed questions keep their right answer."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_server.questions import Choice, Noul, Option, Score
from openjev_training import augment, templates
from openjev_training.examples import Labelled
from openjev_training.reading import Reader
from openjev_training.rows import Row
from openjev_training.sampler import PLAIN, SKILLS, Sampler

LABELS = ("find bus", "book hotel", "play song", "set alarm", "check weather")
FEW = settings(deadline=None, max_examples=60)
POOL = {name: [f"please {name} number {i}" for i in range(6)] for name in LABELS}


def _row(gold: int = 0, names: tuple[str, ...] = LABELS[:3], share: tuple[float, ...] | None = None) -> Row:
    return Row("t", "choice", "the state", "Which?", names, (None,) * len(names), gold, share)


def _letters(name: str) -> str:
    return re.sub(r"[\s_\-]", "", name).lower()


def _right(item: Labelled) -> Option:
    assert isinstance(item.question, Choice)
    return item.question.options[item.target.index(1.0)]


@FEW
@given(st.text("abcdefg _-", min_size=1, max_size=30), st.integers(0, 5))
def test_a_spelling_keeps_the_letters(name: str, style: int) -> None:
    assert _letters(augment.spelling(name, style)) == _letters(name)


@FEW
@given(st.integers(1, 255), st.integers())
def test_random_names_are_all_different(count: int, seed: int) -> None:
    names = augment.random_names(random.Random(seed), count)
    assert len(names) == count == len(set(names))


@FEW
@given(st.integers(), st.integers(0, 2))
def test_an_augmented_choice_keeps_its_right_answer_recognisable(seed: int, gold: int) -> None:
    row = _row(gold)
    item = augment.row_choice(random.Random(seed), row, LABELS, POOL)
    assert isinstance(item.question, Choice)
    names = [o.name for o in item.question.options]
    assert len(set(names)) == len(names)
    right = _right(item)
    if _letters(right.name) in map(_letters, augment.NONE_NAMES):
        assert _letters(LABELS[gold]) not in map(_letters, names)
    elif right.description is not None:  # described by texts of its class: the name may say nothing
        assert LABELS[gold] in str(right.description)
    else:
        assert _letters(right.name) == _letters(LABELS[gold])


def test_shares_of_annotators_stay_with_their_options() -> None:
    rng = random.Random(0)
    for _ in range(50):
        item = augment.plain_choice(rng, _row(share=(0.5, 0.3, 0.2)), LABELS)
        assert isinstance(item.question, Choice)
        found = dict(zip((o.name for o in item.question.options), item.target, strict=True))
        assert found == dict(zip(LABELS, (0.5, 0.3, 0.2), strict=False))


def test_a_choice_as_yes_or_no_asks_about_the_option_that_it_names() -> None:
    rng = random.Random(1)
    seen = set()
    for _ in range(300):
        item = augment.row_noul(rng, _row(gold=1))
        assert isinstance(item.question, Noul)
        text = f"{item.question.instructions} {item.question.true or ''}"
        denied = any(w in text for w in ("anything but", "is not", "Is it wrong"))
        about = LABELS[1] in text
        assert item.target == ((1.0, 0.0) if about != denied else (0.0, 1.0))
        seen.add((about, denied))
    assert len(seen) == 4


def test_a_denied_yes_no_question_swaps_its_answer() -> None:
    row = Row("n", "noul", "s", "Is it late?", ("yes", "no"), (None, None), 0, None)
    rng = random.Random(2)
    for _ in range(300):
        item = augment.from_noul(rng, row)
        if isinstance(item.question, Choice):
            assert _right(item).name.lower() in ("yes", "true", "correct", "applies")
        else:
            denied = str(item.question.instructions) != "Is it late?"
            assert item.target == ((0.0, 1.0) if denied else (1.0, 0.0))


def test_scores_merge_levels_and_turn_round_with_their_targets() -> None:
    levels = ("very negative", "negative", "neutral", "positive", "very positive")
    row = Row("vader.x", "score", "s", "How?", levels, (None,) * 5, 4, None)
    rng = random.Random(3)
    lengths = set()
    for _ in range(300):
        item = augment.row_score(rng, row)
        if isinstance(item.question, Score):
            lengths.add(len(item.question.levels))
            best = item.target.index(1.0)
            assert best in (0, len(item.target) - 1)
            if item.question.levels[0] == "very positive":
                assert best == 0
    assert lengths == {3, 5}


@FEW
@given(st.integers())
def test_a_dressed_state_still_says_what_it_said(seed: int) -> None:
    dressed = str(augment.dress_state(random.Random(seed), "The parcel is late."))
    assert "the parcel is late" in dressed.lower()


@pytest.mark.parametrize("maker", ["order_record", "dates", "policy", "comparison", "log_lines", "grades"])
def test_templates_are_deterministic_and_answerable(maker: str) -> None:
    make = getattr(templates, maker)
    assert make(random.Random(5)) == make(random.Random(5))
    shares = [i.target[0] for s in range(400) for i in make(random.Random(s)).items if isinstance(i.question, Noul)]
    if shares:  # a template whose answer is always the same teaches nothing
        assert 0.15 < sum(shares) / len(shares) < 0.85


def test_thresholds_are_what_the_record_says() -> None:
    for seed in range(200):
        example = templates.order_record(random.Random(seed))
        amount = re.search(r"amount\W+\$(\d+)", str(example.state))
        for item in example.items:
            limit = re.search(r"(?:above|more than|>) \$(\d+)", str(item.question.instructions))
            if amount and limit:
                assert item.target[0] == (int(amount[1]) > int(limit[1]))


def test_plain_mixture_leaves_rows_as_they_stand_and_skills_smooth_them() -> None:
    rows = [_row(i % 3) for i in range(60)]
    reader = Reader([("x", "One thing. Another thing. A third thing.")])
    rng = random.Random(0)
    plain, skills = Sampler(rows, reader, PLAIN), Sampler(rows, reader, SKILLS)
    for _ in range(60):
        for item in plain.draw(rng).items:
            assert item.question.instructions == "Which?"
            assert max(item.target) == 1
        for item in skills.draw(rng).items:
            assert max(item.target) < 1 or len(item.target) == 1
