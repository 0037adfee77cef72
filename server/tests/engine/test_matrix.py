import pytest
import torch
from openjev_server.engine.matrix import (
    INT4_GROUP,
    dequantised,
    expert,
    linear,
    stored_bytes,
    to_float8,
    to_int4,
)


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.randn(3, 8, 4 * INT4_GROUP, generator=torch.Generator().manual_seed(0))


def test_float8_keeps_three_mantissa_bits(weight: torch.Tensor) -> None:
    restored = dequantised(to_float8(weight), torch.float32)
    scale = weight.abs().amax(-1, keepdim=True) / 448
    assert ((restored - weight).abs() <= weight.abs() / 16 + scale * 2**-9).all()


def test_int4_is_within_half_a_level(weight: torch.Tensor) -> None:
    matrix = to_int4(weight)
    restored = dequantised(matrix, torch.float32)
    half = matrix.scale.repeat_interleave(INT4_GROUP, -1) / 2
    assert ((restored - weight).abs() <= half * 1.001).all()


def test_int4_takes_four_and_a_half_bits(weight: torch.Tensor) -> None:
    assert stored_bytes(to_int4(weight.bfloat16())) == weight.numel() * 4.5 / 8


def test_int4_refuses_a_width_it_cannot_group() -> None:
    with pytest.raises(ValueError, match="65 inputs"):
        to_int4(torch.zeros(2, 65))


@pytest.mark.parametrize("quantise", [to_float8, to_int4])
def test_constant_rows_survive(quantise: object) -> None:
    assert callable(quantise)
    for value in (0.0, 0.25):
        weight = torch.full((2, INT4_GROUP), value)
        assert torch.allclose(dequantised(quantise(weight), torch.float32), weight, rtol=1e-2)


@pytest.mark.parametrize("quantise", [to_float8, to_int4])
def test_linear_and_experts_agree_with_the_plain_weight(weight: torch.Tensor, quantise: object) -> None:
    assert callable(quantise)
    x = torch.randn(5, weight.shape[-1], generator=torch.Generator().manual_seed(1))
    matrix = quantise(weight)
    for index in range(3):
        expected = x @ dequantised(matrix, torch.float32)[index].T
        assert torch.allclose(linear(x, expert(matrix, index)), expected, atol=1e-4)
