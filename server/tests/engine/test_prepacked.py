"""Matrices in oneDNN's order: the same products, the same weights back."""

from __future__ import annotations

import pytest
import torch
from openjev_server.bundle import EMBEDDED_MODEL, resolve_model
from openjev_server.engine import loading, prepacked
from openjev_server.engine.builders import builder
from openjev_server.engine.formats import WeightFormat
from openjev_server.engine.matrix import dequantised, expert, linear, stored_bytes
from openjev_server.engine.prepacked import PrepackedMatrix, can_prepack, prepack

needed = pytest.mark.skipif(not can_prepack(), reason="no prepacked products here")


@needed
def test_products_and_weights_are_the_same() -> None:
    weight, x = torch.randn(3, 40, 56), torch.randn(7, 56)
    matrix = prepack(weight)
    assert torch.equal(dequantised(matrix, torch.float32), weight)
    assert stored_bytes(matrix) == 4 * weight.numel()
    for index in range(3):
        torch.testing.assert_close(linear(x, expert(matrix, index)), x @ weight[index].T)


@needed
def test_the_plain_copy_is_given_up() -> None:
    cpu = torch.device("cpu")
    made = builder((8, 24), WeightFormat.PLAIN, cpu, torch.float32, prepacked=True, may_keep=False)
    made.put((slice(0, 8),), torch.ones(8, 24))
    assert isinstance(made.finished(), PrepackedMatrix)
    assert made._tensor is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", [RuntimeError("not built"), AttributeError("no such operator")])
def test_a_torch_without_them_loads_plain_matrices(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    def failing(_: torch.Tensor) -> PrepackedMatrix:
        raise fault

    monkeypatch.setattr(prepacked, "prepack", failing)
    can_prepack.cache_clear()
    try:
        assert not can_prepack()
        engine = loading.load_engine(resolve_model(EMBEDDED_MODEL), device="cpu", dtype="float32")
        engine.warm_up()
    finally:
        can_prepack.cache_clear()
