"""Running prior correction: off by default, found again where it is known, and nobody learns from anybody else."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openjev_server.calibration.prior import PriorCorrection, shifted_prior
from openjev_server.questions import Choice, Noul, Option
from openjev_server.settings import Settings

URGENT = Noul("q", "Is it urgent?")
PAGE = 64 * 1024


def memory(window: int = 256, memory_bytes: int = PAGE) -> PriorCorrection:
    return PriorCorrection(window=window, memory_bytes=memory_bytes)


def test_it_is_off_by_default() -> None:
    assert Settings().prior_correction is False


def test_a_shifted_prior_is_found() -> None:
    rng = np.random.default_rng(0)
    yes = rng.random(4000) < 0.1
    evidence = rng.normal(np.where(yes, 1.5, -1.5), 1.0) * 3.0  # log-likelihood ratio of two unit normals at +-1.5
    p = 1 / (1 + np.exp(-evidence))
    assert shifted_prior(np.stack([p, 1 - p], axis=1))[0] == pytest.approx(0.1, abs=0.02)


def test_few_answers_change_little_and_many_a_lot() -> None:
    prior = memory()
    first = prior.apply("", "", URGENT, [0.6, 0.4])[0]
    assert 0.58 < first < 0.62
    for _ in range(200):
        prior.apply("", "", URGENT, [0.05, 0.95])
    assert prior.apply("", "", URGENT, [0.6, 0.4])[0] < 0.3


def test_clients_questions_and_settings_have_memories_of_their_own() -> None:
    prior = memory()
    for _ in range(100):
        prior.apply("a", "isolated/2", URGENT, [0.05, 0.95])
    fresh = memory().apply("a", "isolated/2", URGENT, [0.6, 0.4])
    criteria = Noul("q", "Is it urgent?", true="today")
    for client, how, question in (
        ("b", "isolated/2", URGENT),
        ("a", "grouped/2", URGENT),
        ("a", "isolated/2", criteria),
    ):
        assert prior.apply(client, how, question, [0.6, 0.4]) == fresh
    renamed = Noul("another id", "Is it urgent?")
    assert prior.apply("a", "isolated/2", renamed, [0.6, 0.4])[0] < 0.4


def test_the_same_requests_get_the_same_answers() -> None:
    rng = np.random.default_rng(1)
    asked = [[float(x), 1 - float(x)] for x in rng.random(50)]
    one, other = memory(), memory()
    assert [one.apply("", "", URGENT, p) for p in asked] == [other.apply("", "", URGENT, p) for p in asked]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(2, 60)), max_size=120), st.integers(1, 5))
def test_memory_stays_within_its_limit(asked: list[tuple[int, int]], window: int) -> None:
    prior = memory(window, 8 * 1024)
    for number, n in asked:
        question = Choice("q", str(number), tuple(Option(str(i)) for i in range(n)))
        found = prior.apply("", "", question, [1 / n] * n)
        assert sum(found) == pytest.approx(1)
        assert prior.held_bytes <= 8 * 1024


def test_a_single_answer_is_not_remembered() -> None:
    prior = memory()
    assert prior.apply("", "", Choice("q", None, (Option("a"),)), [1.0]) == [1.0]
    assert prior.held_bytes == 0


def test_threads_share_it() -> None:
    prior = memory(window=1000)
    work = [
        threading.Thread(target=lambda: [prior.apply("", "", URGENT, [0.9, 0.1]) for _ in range(20)]) for _ in range(4)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert prior.held_bytes == 400 + 80 * 16
