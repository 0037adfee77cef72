"""Every kernel of the CUDA path at DiffusionGemma-26B-A4B's sizes: error against PyTorch, and microseconds.

    python benchmarks/kernels.py --json OUT [--quick]

Times are medians of CUDA events over calls that rotate among enough weights to leave the cache. Floors: the larger of
FLOPs / 790 TFLOP/s and bytes / 4.3 TB/s, both measured on an H200.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
from openjev_server.engine.fused import elementwise, head
from openjev_server.engine.fused.attention import PassColumns, attend, tile_rows
from openjev_server.engine.fused.experts import FLOAT8, INT4, PLAIN, TileShape, experts, tile_shapes
from openjev_server.engine.fused.routing import route
from openjev_server.engine.matrix import Float8Matrix, Int4Matrix, Matrix, to_float8, to_int4
from torch.nn import functional

HIDDEN, INNER, EXPERTS, K, DENSE, VOCAB = 2816, 704, 128, 8, 2112, 262_144
TFLOPS, TBYTES = 790e12, 4.3e12
DEVICE = torch.device("cuda")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    results: list[dict[str, Any]] = []

    def keep(**row: Any) -> None:
        results.append(row)
        print(json.dumps(row), flush=True)
        arguments.json.write_text(json.dumps(results, indent=1))

    for check in (_experts, _attention, _elementwise, _head, _linears):
        try:
            check(keep, arguments.quick)
        except Exception as error:  # the other kernels' numbers are worth having
            keep(kernel=check.__name__, error=f"{type(error).__name__}: {str(error)[:400]}")


def microseconds(call: Callable[[int], object], repeat: int = 20) -> float:
    for index in range(3):
        call(index)
    times = []
    for index in range(repeat):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call(index)
        end.record()
        torch.cuda.synchronize()
        times.append(1000 * begin.elapsed_time(end))
    return statistics.median(times)


def floor(flops: float, bytes_moved: float) -> float:
    return 1e6 * max(flops / TFLOPS, bytes_moved / TBYTES)


def error(out: torch.Tensor, expected: torch.Tensor) -> float:
    return float((out.float() - expected.float()).norm() / expected.float().norm())


def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) * scale).contiguous()


def _experts(keep: Callable[..., None], quick: bool) -> None:
    sets = [
        (normal(EXPERTS, 2 * INNER, HIDDEN, scale=0.02), normal(EXPERTS, HIDDEN, INNER, scale=0.02)) for _ in range(3)
    ]
    eights = [(to_float8(a), to_float8(b)) for a, b in sets]
    fours = [(to_int4(a), to_int4(b)) for a, b in sets]
    for n in (64, 256, 768, 2048, 8192):
        rows, scores = normal(n, HIDDEN), normal(n, EXPERTS)
        scale = torch.ones(EXPERTS, device=DEVICE)
        routing = route(scores, scale, K)
        expected = _loop(rows, scores, *sets[0])
        moved = sum(m.numel() for m in sets[0]) * 2 + n * K * (HIDDEN + INNER) * 4
        least = floor(n * K * 3 * HIDDEN * INNER * 2, moved)
        keep(kernel="route", n=n, us=microseconds(lambda _: route(scores, scale, K)))
        for name, form, variants in (("bf16", PLAIN, sets), ("float8", FLOAT8, eights), ("int4", INT4, fours)):
            chosen = tile_shapes(n * K, EXPERTS, form)
            others = [tile_shapes(size * EXPERTS, EXPERTS, form) for size in (16, 96, 1000)]
            for shapes in [chosen] if quick else [chosen, *(other for other in others if other != chosen)]:
                run = _run(rows, routing, variants, shapes)
                wrong = error(run(0).view(n, K, HIDDEN).sum(1), expected)
                keep(
                    kernel="experts", weights=name, n=n, shapes=str(shapes), chosen=shapes == chosen, error=wrong,
                    us=microseconds(run), floor_us=least,
                )  # fmt: skip
        keep(kernel="experts torch grouped_mm", n=n, us=microseconds(_grouped(rows, scores, sets)), floor_us=least)


def _run(
    rows: torch.Tensor, routing: Any, variants: list[tuple[Matrix, Matrix]], shapes: tuple[TileShape, TileShape]
) -> Callable[[int], torch.Tensor]:
    def run(index: int) -> torch.Tensor:
        first, second = variants[index % len(variants)]
        return experts(rows, routing, first, second, k=K, silu=False, shapes=shapes)

    return run


def _loop(rows: torch.Tensor, scores: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    shares, chosen = scores.float().softmax(-1).topk(K, -1)
    shares = shares / shares.sum(-1, keepdim=True)
    out = torch.zeros(len(rows), HIDDEN, device=DEVICE)
    for expert in range(EXPERTS):
        row, choice = (chosen == expert).nonzero(as_tuple=True)
        gate, up = functional.linear(rows[row].float(), gate_up[expert].float()).chunk(2, -1)
        inner = functional.gelu(gate, approximate="tanh") * up
        out.index_add_(0, row, functional.linear(inner, down[expert].float()) * shares[row, choice, None])
    return out


def _grouped(rows: torch.Tensor, scores: torch.Tensor, sets: list[Any]) -> Callable[[int], object]:
    """The same through torch's grouped product, its sort included."""

    def run(index: int) -> object:
        gate_up, down = sets[index % len(sets)]
        _, chosen = scores.float().softmax(-1).topk(K, -1)
        order = chosen.flatten().argsort()
        offsets = torch.bincount(chosen.flatten(), minlength=EXPERTS).cumsum(0).to(torch.int32)
        between = functional.grouped_mm(rows[order // K], gate_up.transpose(1, 2), offs=offsets)
        gate, up = between.chunk(2, -1)
        inner = functional.gelu(gate, approximate="tanh") * up
        return functional.grouped_mm(inner, down.transpose(1, 2), offs=offsets)

    return run


def _attention(keep: Callable[..., None], quick: bool) -> None:
    """A chunk of `n` state rows that ends a state of `length` tokens, as in a chunked prefill."""
    cases = (
        [(512, 512), (2048, 2048), (8192, 8192)] if quick else [(512, 512), (2048, 2048), (8192, 8192), (8192, 32768)]
    )
    for kv_heads, head_dim, window in ((8, 256, 1024), (2, 512, None)):
        size = tile_rows(16, kv_heads, head_dim)
        for n, length in cases:
            queries = normal(n, 16, head_dim) * head_dim**-0.5
            keys, values = normal(length, kv_heads, head_dim), normal(length, kv_heads, head_dim)
            position = torch.arange(length - n, length, device=DEVICE, dtype=torch.int32)
            zero = torch.zeros_like(position)
            table = torch.arange(length, device=DEVICE, dtype=torch.int32)
            columns = PassColumns(position, position, zero, zero - 1, position, table)
            tiles = [
                [
                    q,
                    min(size, n - q),
                    0,
                    max(0, length - n + q - window + 1) if window else 0,
                    length - n + min(q + size, n),
                ]
                for q in range(0, n, size)
            ]
            packed = torch.tensor([[*tile, 0, 0, 0] for tile in tiles], dtype=torch.int32, device=DEVICE)
            rows = torch.arange(n, device=DEVICE, dtype=torch.int32)
            out = attend(queries, keys, values, rows, columns, packed, window)
            wrong = None
            if length <= 8192:
                at = torch.arange(length, device=DEVICE)
                seen = at[None, :] <= position[:, None]
                if window:
                    seen &= at[None, :] > position[:, None] - window
                expected = functional.scaled_dot_product_attention(
                    queries.transpose(0, 1)[None], keys.transpose(0, 1)[None], values.transpose(0, 1)[None],
                    attn_mask=seen[None, None], scale=1.0, enable_gqa=True,
                )[0].transpose(0, 1)  # fmt: skip
                wrong = error(out, expected)
            pairs = sum(min(p + 1, window or p + 1) for p in range(length - n, length))
            us = microseconds(lambda _: attend(queries, keys, values, rows, columns, packed, window))
            keep(
                kernel="attention", head_dim=head_dim, n=n, length=length, error=wrong, us=us,
                floor_us=floor(4 * 16 * head_dim * pairs, 0),
            )  # fmt: skip


def _elementwise(keep: Callable[..., None], quick: bool) -> None:
    weights = [torch.ones(HIDDEN, device=DEVICE) for _ in range(4)]
    for n in (64, 768, 8192):
        hidden, dense, sparse = normal(n, HIDDEN), normal(n, HIDDEN), normal(n * K, HIDDEN)
        canvas = torch.zeros(n, dtype=torch.int32, device=DEVICE)
        row = n * HIDDEN * 2
        angles = torch.randn(n, 128, device=DEVICE)
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        queries, gate_up, projected = normal(n, 16, 256), normal(n, 2 * DENSE), normal(n, 2 * 8 * 256)
        store = torch.arange(n, device=DEVICE, dtype=torch.int32)
        keys, values = normal(n, 8, 256), normal(n, 8, 256)
        one = torch.ones(256, device=DEVICE)
        for name, call, moved in (
            ("norm", lambda _: elementwise.norm(hidden, weights[0], 1e-6), 2 * row),
            ("after_attention", lambda _: elementwise.after_attention(dense, hidden, *weights, 1e-6), 6 * row),
            (
                "after_experts",
                lambda _: elementwise.after_experts(hidden, dense, sparse, *weights, canvas, 1.0, 1.0, 1e-6),
                (4 + K) * row,
            ),
            ("gate", lambda _: elementwise.gate(gate_up, silu=False), n * DENSE * 6),
            ("rotate_queries", lambda _: elementwise.rotate_queries(queries, one, cos, sin, 1e-6), n * 4096 * 4),
            (
                "place_keys",
                lambda _: elementwise.place_keys(projected, one, cos, sin, store, keys, values, 1e-6),
                n * 4096 * 4,
            ),
        ):
            keep(kernel=name, n=n, us=microseconds(call), floor_us=floor(0, moved))


def _head(keep: Callable[..., None], quick: bool) -> None:
    embedding = normal(VOCAB, HIDDEN, scale=0.02)
    for m in (8, 64, 256):
        hidden = normal(m, HIDDEN)
        raw = functional.linear(hidden, embedding)
        capped = 30 * torch.tanh(raw.float() / 30)
        sums = head.log_sum_exp(raw, 30.0)
        probabilities = raw.clone()
        head.to_probabilities(probabilities, sums, 30.0)
        keep(
            kernel="head", m=m, error=error(sums, capped.logsumexp(-1)),
            probability_error=error(probabilities, capped.softmax(-1)),
            linear_us=microseconds(lambda _: functional.linear(hidden, embedding)),
            sum_us=microseconds(lambda _: head.log_sum_exp(raw, 30.0)),
            normalise_us=microseconds(lambda _: head.to_probabilities(raw.clone(), sums, 30.0)),
            soft_us=microseconds(lambda _: probabilities @ embedding),
            floor_us=floor(0, embedding.numel() * 2),
        )  # fmt: skip


def _linears(keep: Callable[..., None], quick: bool) -> None:
    from openjev_server.engine.fused.float8 import quantise_rows

    for out, width in ((4096, HIDDEN), (HIDDEN, 4096), (8192, HIDDEN), (2 * DENSE, HIDDEN), (HIDDEN, DENSE)):
        weights = [normal(out, width, scale=0.02) for _ in range(4)]
        eights = [to_float8(weight) for weight in weights]
        for n in (64, 768, 8192):
            x = normal(n, width)

            def scaled(index: int, x: torch.Tensor = x, eights: list[Float8Matrix] = eights) -> torch.Tensor:
                values, scale = quantise_rows(x)
                matrix = eights[index % 4]
                return torch._scaled_mm(
                    values, matrix.values.t(), scale_a=scale[:, None], scale_b=matrix.scale[None, :], out_dtype=x.dtype
                )

            keep(
                kernel="linear", out=out, width=width, n=n,
                us=microseconds(lambda i: functional.linear(x, weights[i % 4])),
                float8_us=microseconds(scaled), float8_error=error(scaled(0), functional.linear(x, weights[0])),
                floor_us=floor(2 * n * out * width, out * width * 2),
            )  # fmt: skip


if __name__ == "__main__":
    print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), Int4Matrix.__name__)
    main()
