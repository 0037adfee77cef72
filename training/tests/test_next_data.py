"""Examples for the next run: metadata that names options, judgements over texts, limits in running text."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_server.questions import Choice, Noul, Option
from openjev_training import distractors, judgements, limits, routing
from openjev_training.distractors import misled
from openjev_training.examples import Example, Labelled, one_hot
from openjev_training.reading import Reader
from openjev_training.rows import Guard, Row
from openjev_training.sampler import MIXTURES, SKILLS, SKILLS_2, Sampler

FEW = settings(deadline=None, max_examples=60)
NAMES = ("alpha desk", "beta desk", "gamma desk", "delta desk")
DOC = (
    "The museum in Oslo opened in 1954 after a long debate.",
    "Its founder Ingrid was born in Bergen and moved before the war.",
    "There are 40 rooms, and the largest is above the hall.",
    "Visitors were asked to leave their bags with the guard.",
)
DOCS = [DOC, ("The market is closed on Mondays.", "Farmers have sold cheese here for 30 years.", "It rains a lot.")]


def _choice(target: tuple[float, ...] = one_hot(4, 2)) -> Example:
    return Example("I want help.", (Labelled(Choice("q", "Which?", tuple(map(Option, NAMES))), target),))


def test_metadata_names_a_wrong_option_mostly_and_the_right_one_now_and_then() -> None:
    seen: Counter[str] = Counter()
    for seed in range(600):
        made = misled(random.Random(seed), _choice())
        assert made.items == _choice().items
        assert "I want help." in str(made.state)
        seen.update(name for name in NAMES if name in str(made.state))
    assert 0 < seen[NAMES[2]] < 0.5 * min(seen[n] for n in NAMES if n != NAMES[2])


def test_an_object_gets_a_field_and_what_has_no_sure_option_is_left_alone() -> None:
    rng = random.Random(0)
    made = misled(rng, replace(_choice(), state={"body": "I want help."}))
    assert isinstance(made.state, dict)
    assert len(made.state) == 2
    unsure = _choice((0.4, 0.3, 0.2, 0.1))
    assert misled(rng, unsure) is unsure
    noul = Example("s", (Labelled(Noul("q", "Is it?"), one_hot(2, 0)),))
    assert misled(rng, noul) is noul


def test_the_routing_measure_keeps_wordings_of_its_own() -> None:
    """A line that training shares with the measure would make it a test of memory."""

    def phrases(forms: tuple[str, ...]) -> set[str]:
        return {p.lower() for f in forms for p in re.findall(r"[A-Za-z][A-Za-z ]{3,}[a-z]", re.sub(r"\{\w\}", "|", f))}

    own = phrases(distractors._ONE) | phrases(distractors._TWO)
    for measured in phrases(routing._TAIL):
        assert not any(measured in phrase or phrase in measured for phrase in own), measured


@FEW
@given(st.integers(), st.sampled_from([s for doc in DOCS for s in doc]))
def test_a_spoilt_sentence_has_one_mistake(seed: int, sentence: str) -> None:
    spoilt = judgements.spoil(random.Random(seed), sentence)
    if spoilt is not None:
        assert spoilt != sentence
        before, after = Counter(sentence.split()), Counter(spoilt.split())
        assert sum((before - after).values()) <= 1
        assert sum((after - before).values()) <= 1


@FEW
@given(st.integers())
def test_a_changed_claim_is_not_in_the_passage(seed: int) -> None:
    rng = random.Random(seed)
    sentence = rng.choice(DOC)
    changed = judgements.claim(rng, sentence, " ".join(DOC))
    assert changed is not None
    assert changed != sentence
    assert changed not in " ".join(DOC)


def test_claims_are_true_exactly_when_the_passage_says_them() -> None:
    truths: Counter[bool] = Counter()
    for seed in range(300):
        example = judgements.supported(random.Random(seed), DOCS)
        if example is None:
            continue
        text = str(example.items[0].question.instructions)
        quoted = text[text.index('"') + 1 : text.rindex('"')]
        denied = any(w in text for w in ("otherwise", "wrong report", "does not support"))
        truth = (quoted in str(example.state)) != denied
        assert example.items[0].target == one_hot(2, 0 if truth else 1)
        truths[truth] += 1
    assert min(truths.values()) > 50


def test_well_formed_is_yes_exactly_for_sentences_as_they_were_written() -> None:
    written = {s.lower().rstrip(".?!") for doc in DOCS for s in doc}
    found = [e for seed in range(300) if (e := judgements.well_formed(random.Random(seed), DOCS))]
    assert len(found) > 150
    for example in found:
        good = str(example.state).lower().rstrip(".?!") in written
        asks_good = example.items[0].question.instructions in judgements._GOOD
        assert example.items[0].target == one_hot(2, 0 if good == asks_good else 1)


def test_what_is_rare_is_rare_and_there_when_the_answer_is_yes() -> None:
    counts: Counter[bool] = Counter()
    for seed in range(800):
        example = judgements.rare(random.Random(seed), DOCS[1:])
        if example is None:
            continue
        for item in example.items:
            yes = item.target == one_hot(2, 0)
            counts[yes] += 1
            if item.question.instructions in judgements._PLANTS["mail"][0]:
                assert yes == ("@" in str(example.state))
    assert 0.08 < counts[True] / counts.total() < 0.2
    with pytest.raises(KeyError):
        judgements.plant(random.Random(0), "weather")


def test_judgements_draw_from_texts_behind_the_wall_only() -> None:
    texts = [("super_ni", " ".join(doc)) for doc in DOCS]
    held = Row("boolq", "noul", " ".join(DOC), "Is it?", ("yes", "no"), (None, None), 0, None)
    guard = Guard([held], [])
    kept = [(source, text) for source, text in texts if guard.allows_text(source, text)]
    docs = Reader(kept).docs
    assert len(docs) == 1
    drawn = [judgements.draw(random.Random(seed), docs) for seed in range(200)]
    assert any(drawn)
    assert not any("Oslo" in str(e) or "Ingrid" in str(e) for e in drawn)


@pytest.mark.parametrize("make", [limits.budget, limits.deadline, limits.eligible, limits.unit_price])
def test_limits_are_repeatable_and_neither_answer_is_the_rule(make: object) -> None:
    assert callable(make)
    assert make(random.Random(3)) == make(random.Random(3))
    answers = [i.target[0] for s in range(500) for i in make(random.Random(s)).items if isinstance(i.question, Noul)]
    assert 0.2 < sum(answers) / len(answers) < 0.8


def test_a_sum_is_compared_as_the_wording_says() -> None:
    compare = {
        r"at least \$(\d+) asked": lambda a, b: a >= b,
        r"more than \$(\d+) asked": lambda a, b: a > b,
        r"request under \$(\d+)": lambda a, b: a < b,
        r"come to \$(\d+) at most": lambda a, b: a <= b,
    }
    checked = 0
    for seed in range(600):
        example = limits.budget(random.Random(seed))
        amount = re.search(r"asks for \D*([\d,]+)", str(example.state))
        assert amount
        for item in example.items:
            for pattern, holds in compare.items():
                if found := re.search(pattern, str(item.question.instructions)):
                    truth = holds(int(amount[1].replace(",", "")), int(found[1]))
                    assert item.target == one_hot(2, 0 if truth else 1)
                    checked += 1
    assert checked > 200


def test_the_new_mixture_adds_to_skills_and_leaves_it_as_it_was() -> None:
    assert (SKILLS.judgements, SKILLS.limits, SKILLS.misled) == (0, 0, 0)
    assert MIXTURES["skills-2"] is SKILLS_2
    shares = (SKILLS_2.rows, SKILLS_2.reading, SKILLS_2.templates, SKILLS_2.threads, SKILLS_2.judgements)
    assert sum(shares) + SKILLS_2.limits == pytest.approx(1)
    rows = [Row("t", "choice", f"state {i}", "Which?", NAMES, (None,) * 4, i % 4, None) for i in range(80)]
    sampler = Sampler(rows, Reader([("x", " ".join(doc)) for doc in DOCS]), SKILLS_2)
    rng = random.Random(0)
    for example in [sampler.draw(rng) for _ in range(500)]:
        for item in example.items:
            assert sum(item.target) == pytest.approx(1)
