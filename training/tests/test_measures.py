"""Packing, rounding, the numbers, and predictions of a tiny model."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.questions import Choice, Noul, Option
from openjev_training import metrics
from openjev_training.backbone import Nano
from openjev_training.device import Runner
from openjev_training.examples import Example, Labelled, one_hot
from openjev_training.packing import BLOCK, Encoder, chunks, pack
from openjev_training.predict import Record, answer, plan_jobs, read_predictions, write_predictions
from openjev_training.quantise import quantised, round_groups, round_rows
from openjev_training.rows import Row


def _noul(text: str) -> Labelled:
    return Labelled(Noul("q", text), one_hot(2, 0))


def test_what_does_not_fit_is_handed_back(shipped: Path) -> None:
    encoder = Encoder.from_directory(shipped)
    short, long = (encoder.compile(Example(s, (_noul("Is it?"),))) for s in ("hi", "word " * 300))
    batch, left = pack([short, long, short], BLOCK, np.random.default_rng(0), encoder)
    assert (batch.count, left) == (2, [long])
    assert batch.tokens == 2 * short.tokens
    assert (batch.doc[batch.tokens :] == -1).all()
    assert [len(c) for c in chunks([short] * 5, 2 * short.tokens, 99)] == [2, 2, 1]
    with pytest.raises(ValueError, match="does not fit"):
        list(chunks([long], BLOCK, 99))


def test_255_options_fit_a_slot_and_their_labels_stay_where_they_are(shipped: Path) -> None:
    encoder = Encoder.from_directory(shipped)
    options = tuple(Option(f"name {i}") for i in range(255))
    one = encoder.compile(Example("s", (Labelled(Choice("q", "Which?", options), one_hot(255, 7)),)))
    assert encoder.room(one.items[0]) == 0
    assert encoder.room(encoder.compile(Example("s", (_noul("Is it?"),))).items[0]) == 0
    length = -(-one.tokens // BLOCK) * BLOCK
    batch, _ = pack([one], length, np.random.default_rng(0), encoder, shuffle_labels=1.0)
    assert (batch.candidates[0] >= 0).sum() == 255
    assert batch.targets[0].argmax() == 7


def test_only_training_cuts_long_states(shipped: Path) -> None:
    example = Example("word " * 3000, (_noul("Is it?"),))
    assert len(Encoder.from_directory(shipped, state_limit=100).compile(example).state) == 100
    assert len(Encoder.from_directory(shipped, state_limit=None).compile(example).state) > 2000


def test_rounding_is_within_half_a_level_and_the_exact_weights_come_back(tiny: Nano) -> None:
    weight = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    groups = weight.view(-1, 32)
    step = (groups.amax(1) - groups.amin(1)) / 15
    error = (round_groups(weight) - weight).view(-1, 32).abs().amax(1)
    assert (error <= step * 0.51 + 4e-3).all()  # scale and minimum are half precision
    assert ((round_rows(weight) - weight).abs().amax(1) <= weight.abs().amax(1) / 254 + 2e-3).all()
    before = {name: p.detach().clone() for name, p in tiny.named_parameters()}
    with quantised(tiny):
        assert not torch.equal(tiny.embed.weight, before["embed.weight"])
    with pytest.raises(ZeroDivisionError), quantised(tiny):
        _ = 1 / 0
    assert all(torch.equal(p, before[name]) for name, p in tiny.named_parameters())


def test_predictions_of_a_tiny_model_survive_a_file_and_a_shuffled_order(
    tiny: Nano, shipped: Path, tmp_path: Path
) -> None:
    rows = [Row("hwu64", "choice", f"state {i}", "Which?", ("a", "b", "c"), (None,) * 3, 1, None) for i in range(3)]
    rows += [Row("creak", "noul", "s", "Is it?", ("yes", "no"), (None, None), 0, None)]
    encoder = Encoder.from_directory(shipped, state_limit=None)
    jobs = plan_jobs(encoder, {"held-out": rows, "test": rows[:1]}, varied=2)
    assert len(jobs) == 5 + 2 * 4 + 3
    records = answer(Runner(tiny, torch.device("cpu"), compiled=False), encoder, jobs, length=4 * BLOCK)
    write_predictions(tmp_path / "p.xz", records)
    assert read_predictions(tmp_path / "p.xz") == records
    for record in records:
        assert len(record.steps) == 2
        assert sum(record.steps[1]) == pytest.approx(1, abs=1e-3)
    shuffled = [r for r in records if r.variant == "order"]
    assert {r.gold for r in shuffled} == {1}  # told in the row's order, as its probabilities are
    found = metrics.summary(records)
    assert set(found["sensitivity"]) == {"injected", "noise", "order", "other language"}
    assert found["held-out"]["macro choice"]["rows"] == 3


def test_equal_mass_bins_and_the_scores_of_a_summary() -> None:
    rng = random.Random(0)
    confidence = [rng.random() for _ in range(4000)]
    right = [rng.random() < c for c in confidence]
    assert metrics.ece(confidence, right) < 0.03
    assert metrics.ece(confidence, [not r for r in right]) > 0.3
    record = Record("m", "plain", "t", "score", 0, 2, ((0.2, 0.3, 0.5), (0.0, 0.5, 0.5)))
    records = [record, replace(record, number=1, gold=1)]
    found = metrics.summary(records)["m"]["t"]
    assert (found["step 1"], found["step 2"]) == (0.5, 0.5)
    assert found["mae"] == pytest.approx(0.5)
    assert found["majority"] == 0.5


def test_a_task_of_two_types_is_two_tasks() -> None:
    choice = Record("m", "plain", "t", "choice", 0, 0, ((0.9, 0.1),))
    found = metrics.summary([choice, replace(choice, kind="noul", number=1)])["m"]
    assert {"t (choice)", "t (noul)"} <= set(found)
