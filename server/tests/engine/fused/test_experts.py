from collections.abc import Callable

import pytest
import torch
from openjev_server.engine.fused.experts import TileShape, experts, tile_shapes
from openjev_server.engine.fused.float8 import quantise_rows
from openjev_server.engine.fused.routing import route
from openjev_server.engine.matrix import Matrix, dequantised, to_float8, to_int4
from torch.nn import functional

HIDDEN, INNER, EXPERTS, K = 64, 128, 8, 2


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def routed(n: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    return normal(1, n, EXPERTS).to(device), (normal(2, EXPERTS).abs() + 0.5).to(device)


@pytest.mark.parametrize(("n", "k"), [(1, 2), (37, 2), (5, 3), (5, EXPERTS)])
def test_route_groups_every_entry_once_under_its_expert(n: int, k: int, device: torch.device) -> None:
    scores, scale = routed(n, device)
    routing = route(scores, scale, k)
    top, chosen = scores.softmax(-1).topk(k, -1)
    assert torch.allclose(routing.shares.view(n, k), top / top.sum(-1, keepdim=True) * scale[chosen], atol=1e-6)
    assert sorted(routing.entries.tolist()) == list(range(n * k))
    assert routing.counts.tolist() == torch.bincount(chosen.flatten(), minlength=EXPERTS).tolist()
    start = 0
    for expert, count in enumerate(routing.counts.tolist()):
        mine = routing.entries[start : start + count].long()
        assert (chosen.flatten()[mine] == expert).all()
        start += count


def reference(rows: torch.Tensor, scores: torch.Tensor, scale: torch.Tensor, gate_up: Matrix, down: Matrix, silu: bool):
    shares, chosen = scores.softmax(-1).topk(K, -1)
    shares = shares / shares.sum(-1, keepdim=True) * scale[chosen]
    first, second = dequantised(gate_up, torch.float32), dequantised(down, torch.float32)
    out = torch.empty(len(rows), K, HIDDEN, device=rows.device)
    for row in range(len(rows)):
        for choice in range(K):
            expert = chosen[row, choice]
            gate, up = (first[expert] @ rows[row]).chunk(2)
            acted = functional.silu(gate) if silu else functional.gelu(gate, approximate="tanh")
            out[row, choice] = second[expert] @ (acted * up) * shares[row, choice]
    return out.flatten(0, 1)


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("shape", [TileShape(16, 64, 64, 4, 2), TileShape(64, 64, 64, 4, 2), None])
def test_experts_equal_a_loop_over_rows(shape: TileShape | None, silu: bool, device: torch.device) -> None:
    scores, scale = routed(19, device)
    rows = normal(3, 19, HIDDEN).to(device)
    gate_up = (normal(4, EXPERTS, 2 * INNER, HIDDEN) * 0.1).to(device)
    down = (normal(5, EXPERTS, HIDDEN, INNER) * 0.1).to(device)
    out = experts(rows, route(scores, scale, K), gate_up, down, k=K, silu=silu, shapes=shape and (shape, shape))
    assert torch.allclose(out, reference(rows, scores, scale, gate_up, down, silu), atol=1e-4)


@pytest.mark.parametrize(("quantise", "bound"), [(to_int4, 1e-5), (to_float8, 5e-2)])
def test_quantised_experts(quantise: Callable[[torch.Tensor], Matrix], bound: float, device: torch.device) -> None:
    """4 bits against the same weights dequantised; FP8 rounds the activations as well, to three bits of mantissa (and
    the interpreter rounds some of them wrongly)."""
    bound *= 1 if device.type == "cuda" else 2
    scores, scale = routed(19, device)
    rows = normal(3, 19, HIDDEN).to(device)
    gate_up = quantise((normal(4, EXPERTS, 2 * INNER, HIDDEN) * 0.1).to(device))
    down = quantise((normal(5, EXPERTS, HIDDEN, INNER) * 0.1).to(device))
    out = experts(rows, route(scores, scale, K), gate_up, down, k=K, silu=False)
    expected = reference(rows, scores, scale, gate_up, down, False)
    assert (out - expected).norm() / expected.norm() < bound


def test_rows_in_float8(device: torch.device) -> None:
    rows = normal(6, 5, 96).to(device)
    rows[3] = 0
    values, scale = quantise_rows(rows)
    wrong = (values.float() * scale[:, None] - rows).abs() > rows.abs() / 16 + scale[:, None] * 2**-9
    if device.type == "cpu":
        # Triton's interpreter loses the carry where rounding reaches the next power of two.
        wrong &= torch.frexp(rows / scale[:, None]).mantissa.abs() < 31 / 32
    assert not wrong.any()


def test_few_entries_get_small_tiles() -> None:
    rows = [[shape.rows for shape in tile_shapes(entries, 128)] for entries in (128, 8192, 65536)]
    assert rows == [[16, 16], [64, 64], [128, 128]]
