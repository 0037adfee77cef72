from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.wire.json import to_json_bytes

CODE_POINTS = st.text(alphabet=st.characters(exclude_categories=()), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | CODE_POINTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(CODE_POINTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_round_trip(value: Any) -> None:
    assert json.loads(to_json_bytes(value).decode()) == json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1, 2.0, None], "ü": "世"}, '{"a":[1,2.0,null],"ü":"世"}'.encode()),
        ({"\ud800": "ü\udfff"}, '{"\\ud800":"ü\\udfff"}'.encode()),
        ([0.00001, 1.5e-06, 1e-05, "1e-5"], b'[0.00001,0.0000015,0.00001,"1e-5"]'),
        ([1e22, -1e-7], b"[1e+22,-0.0000001]"),
    ],
)
def test_spelling(value: Any, expected: bytes) -> None:
    assert to_json_bytes(value) == expected


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_no_json(bad: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        to_json_bytes({"x": ["1e-5", bad]})


def test_deep_values() -> None:
    value: Any = 1e-7
    for _ in range(250):
        value = {"a": [value]}
    assert to_json_bytes(value) == b'{"a":[' * 250 + b"0.0000001" + b"]}" * 250
