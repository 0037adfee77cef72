"""What the edge cases are made of."""

from __future__ import annotations

import random

from openjev_training.edges import filled, lookup


def test_a_lookup_names_its_right_option_and_no_other() -> None:
    state, question, right = lookup(255, random.Random(1))
    names = [option.name for option in question.options]
    assert len(set(names)) == 255
    assert [name for name in names if f" {name}." in str(state)] == [names[right]]


def test_a_filled_state_begins_with_its_text_and_is_as_long_as_asked() -> None:
    text = filled("My bill is wrong.", 300, lambda part: len(part.split()), random.Random(1))
    assert text.startswith("My bill is wrong.\n")
    assert 300 <= len(text.split()) < 310
