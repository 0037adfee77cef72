import pytest
import torch
from openjev_server.engine.fused import elementwise, head
from openjev_server.engine.ops import gated, rms
from torch.nn import functional

EPS = 1e-6


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_norm(device: torch.device) -> None:
    rows, weight = normal(0, 5, 96).to(device), normal(1, 96).to(device)
    assert torch.allclose(elementwise.norm(rows, weight, EPS), rms(rows, weight, EPS), atol=1e-5)


@pytest.mark.parametrize("silu", [True, False])
def test_gate(silu: bool, device: torch.device) -> None:
    rows = (normal(0, 5, 96) * 4).to(device)
    expected = gated("silu" if silu else "gelu_pytorch_tanh", rows.clone())
    assert torch.allclose(elementwise.gate(rows, silu=silu), expected, atol=1e-5)


def turned(x: torch.Tensor, weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    x = rms(x, weight, EPS)
    first, second = x.chunk(2, -1)
    wide_cos, wide_sin = (part.repeat(1, 2)[:, None] for part in (cos, sin))
    return x * wide_cos + torch.cat((-second, first), -1) * wide_sin


def test_rotate_queries(device: torch.device) -> None:
    queries, weight = normal(0, 5, 3, 32).to(device), normal(1, 32).to(device)
    angles = normal(2, 5, 16).to(device)
    rotated = elementwise.rotate_queries(queries, weight, angles.cos(), angles.sin(), EPS)
    assert torch.allclose(rotated, turned(queries, weight, angles.cos(), angles.sin()), atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_place_keys(shared: bool, device: torch.device) -> None:
    """Where values are the keys before their norm, the projection holds them once."""
    projected, weight = normal(0, 5, 3 * 32 * (1 if shared else 2)).to(device), normal(1, 32).to(device)
    angles, store = normal(2, 5, 16).to(device), torch.tensor([7, 0, 3, 4, 9], dtype=torch.int32).to(device)
    keys, values = (torch.full((12, 3, 32), -5.0).to(device) for _ in range(2))
    elementwise.place_keys(projected, weight, angles.cos(), angles.sin(), store, keys, values, EPS)
    parts = projected.chunk(1 if shared else 2, -1)
    expected = turned(parts[0].view(5, 3, 32), weight, angles.cos(), angles.sin())
    assert torch.allclose(keys[store.long()], expected, atol=1e-5)
    assert torch.allclose(values[store.long()], rms(parts[-1].view(5, 3, 32), None, EPS), atol=1e-5)
    untouched = [row for row in range(12) if row not in store.tolist()]
    assert (keys[untouched] == -5).all()
    assert (values[untouched] == -5).all()


def test_after_attention(device: torch.device) -> None:
    output, hidden = normal(0, 5, 96).to(device), normal(1, 5, 96).to(device)
    weights = [normal(seed, 96).to(device) for seed in range(2, 6)]
    result, dense, sparse, router = elementwise.after_attention(output, hidden, *weights, EPS)
    expected = hidden + rms(output, weights[0], EPS)
    assert torch.allclose(result, expected, atol=1e-5)
    assert torch.allclose(dense, rms(expected, weights[1], EPS), atol=1e-5)
    assert torch.allclose(sparse, rms(expected, weights[2], EPS), atol=1e-5)
    assert torch.allclose(router, rms(expected, None, EPS) * weights[3] * 96**-0.5, atol=1e-5)


def test_after_experts(device: torch.device) -> None:
    hidden, dense, sparse = (normal(0, 5, 96).to(device), normal(1, 5, 96).to(device), normal(2, 10, 96).to(device))
    weights = [normal(seed, 96).to(device) for seed in range(3, 7)]
    is_canvas = torch.tensor([0, 1, 1, 0, 1], dtype=torch.int32).to(device)
    result, normed = elementwise.after_experts(hidden, dense, sparse, *weights, is_canvas, 0.5, 2.0, EPS)
    both = rms(dense, weights[0], EPS) + rms(sparse.view(5, 2, 96).sum(1), weights[1], EPS)
    expected = (hidden + rms(both, weights[2], EPS)) * torch.where(is_canvas == 1, 2.0, 0.5)[:, None]
    assert torch.allclose(result, expected, atol=1e-5)
    assert torch.allclose(normed, rms(expected, weights[3], EPS), atol=1e-5)


@pytest.mark.parametrize("vocab", [100, 5000])
def test_capped_softmax(vocab: int, device: torch.device) -> None:
    raw = (normal(0, 3, vocab) * 40).to(device)
    capped = 30 * torch.tanh(raw / 30)
    sums = head.log_sum_exp(raw, 30.0)
    assert torch.allclose(sums, capped.logsumexp(-1), atol=1e-4)
    head.to_probabilities(raw, sums, 30.0)
    assert torch.allclose(raw, functional.softmax(capped, -1), atol=1e-5)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_logit_that_is_not_finite_shows(bad: float, device: torch.device) -> None:
    raw = normal(0, 2, 50).to(device)
    raw[1, 7] = bad
    sums = head.log_sum_exp(raw, 30.0)
    assert sums[0].isfinite()
    assert sums[1].isnan()


def test_a_cap_that_would_overflow_is_refused(device: torch.device) -> None:
    with pytest.raises(ValueError, match="cap of 90"):
        head.log_sum_exp(torch.zeros(1, 8, device=device), 90.0)
