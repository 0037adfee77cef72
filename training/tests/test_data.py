"""The wall, the examples and the packing, without a model."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_training import metrics, templates
from openjev_training.examples import Example, Labelled, from_row, one_hot, smooth
from openjev_training.packing import BLOCK, Encoder, pack
from openjev_training.predict import Record, variants
from openjev_training.quantise import round_groups
from openjev_training.reading import Reader, parse_quiz
from openjev_training.rows import Guard, Row
from openjev_training.sampler import SKILLS, Sampler


def _row(task: str, state: str, instructions: str = "Which?", gold: int = 0) -> Row:
    return Row(task, "choice", state, instructions, ("a b", "c d", "e f"), (None, None, None), gold, None)


def test_guard_keeps_out_states_claims_and_dialogue_prefixes() -> None:
    held = [_row("sgd.service", "User: Find me a bus."), _row("creak", "General knowledge.", "Owls can fly at night.")]
    guard = Guard(held, [_row("copa", "x", "A test question that is long enough to be known?")])
    assert not guard.allows_row(_row("sgd.intent", "user:  find me a bus"))
    assert not guard.allows_row(_row("sgd.act", "User: Find me a bus.\nAgent: Where to?"))
    assert not guard.allows_row(_row("csqa2", "General knowledge.", "owls can fly at night"))
    assert guard.allows_row(_row("csqa2", "General knowledge.", "Cats can fly."))
    assert not guard.allows_text("sgd", "User: Find me a bus.\nAssistant: Where to?\nUser: Rome")
    assert not guard.allows_text("cot", "A test question that is long enough to be known?\nyes\nBecause.")
    assert not guard.allows_text("cot", 'Is the following a factual statement?\n"Anything."\nyes\nSo.')
    assert guard.allows_text("super_ni", "A quiet afternoon by the lake.")


def test_quiz_texts_are_read() -> None:
    quiz = parse_quiz("What is wet?\nOptions:\n- sand\n- water\nwater\nWater is wet.")
    assert quiz is not None
    assert (quiz.options, quiz.answer, quiz.explanation) == (("sand", "water"), 1, "Water is wet.")
    yes = parse_quiz("Is water wet?\nyes\nIt is.")
    assert yes is not None
    assert (yes.options, yes.answer) == ((), 0)
    assert parse_quiz("Only one line") is None


def test_every_drawn_target_is_a_distribution() -> None:
    rng = random.Random(1)
    rows = [_row("t", f"state {i}", gold=i % 3) for i in range(300)]
    rows += [Row("n", "noul", f"s {i}", "Is it?", ("yes", "no"), (None, None), i % 2, None) for i in range(50)]
    levels = ("very negative", "negative", "neutral", "positive", "very positive")
    rows += [Row("vader.x", "score", f"v {i}", "How?", levels, (None,) * 5, i % 5, None) for i in range(50)]
    texts = [
        ("x", f"The {w} opens early. Nobody came to the {w} today. It rained a lot.") for w in ("market", "museum")
    ]
    sampler = Sampler(rows, Reader(texts * 5), SKILLS)
    for example in [sampler.draw(rng) for _ in range(400)] + [templates.draw(rng) for _ in range(400)]:
        assert example.items
        for item in example.items:
            assert sum(item.target) == pytest.approx(1)
            assert min(item.target) >= 0


def test_labelled_refuses_a_wrong_number_of_targets() -> None:
    with pytest.raises(ValueError, match="2 targets for 3 answers"):
        Labelled(from_row(_row("t", "s")).question, (1.0, 0.0))


def test_smoothing_keeps_the_sum_and_the_order() -> None:
    assert smooth((1.0, 0.0), 0.1) == pytest.approx((0.95, 0.05))


def test_packing_restarts_positions_and_moves_labels_together(shipped: Path) -> None:
    encoder = Encoder.from_directory(shipped)
    one = encoder.compile(Example("hello there", (from_row(_row("t", "s")), from_row(_row("t", "s")))))
    batch, left = pack([one, one], 2 * BLOCK, np.random.default_rng(0), encoder, shuffle_labels=1.0)
    assert not left
    assert batch.count == 4
    for slot in range(batch.count):
        row = int(batch.slots[slot])
        assert batch.canvas[row]
        mine = (batch.doc == batch.doc[row]) & (batch.segment == batch.segment[row])
        assert batch.positions[mine].min() == len(one.state)
        candidates = batch.candidates[slot][batch.candidates[slot] >= 0]
        assert set(candidates) <= set(batch.ids[mine])
    assert batch.tokens == 2 * one.tokens


def test_option_order_variant_maps_back() -> None:
    row = _row("t", "s", gold=1)
    changed, order = variants(row, random.Random(0))["order"]
    assert [row.names[i] for i in order] == list(changed.names)
    assert changed.names[changed.gold] == row.names[row.gold]


def test_rounding_is_idempotent() -> None:
    once = round_groups(torch.randn(8, 64, generator=torch.Generator().manual_seed(0)))
    assert torch.allclose(round_groups(once), once, atol=2e-3)


def test_metrics() -> None:
    assert metrics.balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0]) == 0.5
    assert metrics.ece([0.9] * 10, [True] * 9 + [False], bins=1) == pytest.approx(0)
    assert metrics.brier([one_hot(2, 0)], [1]) == 2
    plain = [Record("m", "plain", "t", "choice", i, 0, ((0.9, 0.1),)) for i in range(4)]
    other = [Record("m", "order", "t", "choice", i, 0, ((0.9, 0.1) if i else (0.1, 0.9),)) for i in range(4)]
    assert metrics.flip_rate(plain, other) == 0.25
