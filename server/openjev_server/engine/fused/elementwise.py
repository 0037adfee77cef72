"""What stands between a layer's matrix products, one kernel for each gap. Norms in float32, as transformers does.

A root-mean-square norm is x / sqrt(mean(x^2) + eps) * weight.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

__all__ = ["after_attention", "after_experts", "gate", "norm", "place_keys", "rotate_queries"]


def norm(rows: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """The norm of [n, width]."""
    n, width = rows.shape
    normed = torch.empty_like(rows)
    _norm[(n,)](rows, weight, normed, eps, WIDTH=width, BLOCK=triton.next_power_of_2(width), num_warps=4)
    return normed


def rotate_queries(
    queries: torch.Tensor, weight: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, eps: float
) -> torch.Tensor:
    """Norm and rotary embedding of [n, heads, head_dim]; cos and sin are [n, head_dim / 2]."""
    n, heads, head_dim = queries.shape
    rotated = torch.empty_like(queries)
    _rotate_rows[(n,)](
        queries, weight, cos, sin, rotated, eps,
        HEADS=heads, BLOCK=triton.next_power_of_2(heads), D=head_dim, STRIDE=heads * head_dim, num_warps=8,
    )  # fmt: skip
    return rotated


def place_keys(
    projected: torch.Tensor,
    weight: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    store: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    eps: float,
) -> None:
    """Keys (norm and rotary embedding) and values (norm without weight) to their pool rows `store` [n] int32.

    `projected` is [n, 2 * kv heads * head_dim], keys before values, or half as wide where values are the keys before
    their norm.
    """
    n = len(projected)
    _, kv_heads, head_dim = keys.shape
    width = kv_heads * head_dim
    block = triton.next_power_of_2(kv_heads)
    stride = projected.shape[1]
    _place[(n, 2)](
        projected, weight, cos, sin, keys, values, store, eps,
        HEADS=kv_heads, BLOCK=block, D=head_dim, STRIDE=stride, OFFSET=stride - width, num_warps=4,
    )  # fmt: skip


def gate(gate_up: torch.Tensor, *, silu: bool) -> torch.Tensor:
    """act(gate) * up of [n, 2 * inner] -> [n, inner]."""
    n, width = gate_up.shape
    inner = width // 2
    out = torch.empty(n, inner, dtype=gate_up.dtype, device=gate_up.device)
    block = 1024
    _gate[(n, triton.cdiv(inner, block))](gate_up, out, INNER=inner, BLOCK=block, SILU=silu, num_warps=4)
    return out


def after_attention(
    output: torch.Tensor,
    hidden: torch.Tensor,
    post_attention: torch.Tensor,
    dense: torch.Tensor,
    sparse: torch.Tensor,
    router: torch.Tensor,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The residual [n, width], and its norm as the dense MLP, the experts and the router read it.

    `router` is the router's scale [width]; the factor width^-0.5 is applied here.
    """
    n, width = hidden.shape
    results = [torch.empty_like(hidden) for _ in range(4)]
    _after_attention[(n,)](
        output, hidden, post_attention, dense, sparse, router, *results, eps, width**-0.5,
        WIDTH=width, BLOCK=triton.next_power_of_2(width), num_warps=8,
    )  # fmt: skip
    return results[0], results[1], results[2], results[3]


def after_experts(
    hidden: torch.Tensor,
    dense: torch.Tensor,
    sparse: torch.Tensor,
    dense_norm: torch.Tensor,
    sparse_norm: torch.Tensor,
    both_norm: torch.Tensor,
    next_norm: torch.Tensor,
    is_canvas: torch.Tensor,
    encoder_scalar: float,
    decoder_scalar: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The layer's result [n, width], and its norm as the next layer reads it.

    `sparse` is [n * k, width]: the k entries of a row are summed here. `is_canvas` [n] int32 picks the layer scalar.
    """
    n, width = hidden.shape
    result, normed = torch.empty_like(hidden), torch.empty_like(hidden)
    _after_experts[(n,)](
        hidden, dense, sparse, dense_norm, sparse_norm, both_norm, next_norm, is_canvas, result, normed,
        encoder_scalar, decoder_scalar, eps,
        CHOICES=len(sparse) // n, WIDTH=width, BLOCK=triton.next_power_of_2(width), num_warps=8,
    )  # fmt: skip
    return result, normed


@triton.jit
def _scale(x, eps, WIDTH: tl.constexpr):
    return tl.rsqrt(tl.sum(x * x, 0) / WIDTH + eps)


@triton.jit
def _norm(rows, weight, normed, eps, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * WIDTH
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    x = tl.load(rows + row + column, mask=inside, other=0.0).to(tl.float32)
    result = x * _scale(x, eps, WIDTH) * tl.load(weight + column, mask=inside, other=0.0)
    tl.store(normed + row + column, result.to(normed.dtype.element_ty), mask=inside)


@triton.jit
def _place(
    rows, weight, cosines, sines, keys, values, store, eps,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr, STRIDE: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    to = tl.load(store + row).to(tl.int64)
    if tl.program_id(1) == 0:
        _rotate(rows, weight, cosines, sines, keys, row, to, eps, HEADS, BLOCK, D, STRIDE)
    else:
        _values(rows, values, row, to, eps, HEADS, BLOCK, D, STRIDE, OFFSET)


@triton.jit
def _rotate_rows(
    rows, weight, cosines, sines, out, eps,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    _rotate(rows, weight, cosines, sines, out, row, row, eps, HEADS, BLOCK, D, STRIDE)


@triton.jit
def _rotate(
    rows, weight, cosines, sines, out, row, to, eps,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr, STRIDE: tl.constexpr,
):  # fmt: skip
    head = tl.arange(0, BLOCK)
    half = tl.arange(0, D // 2)
    inside = (head < HEADS)[:, None]
    at = row * STRIDE + head[:, None] * D + half[None, :]
    first = tl.load(rows + at, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(rows + at + D // 2, mask=inside, other=0.0).to(tl.float32)
    scale = tl.rsqrt((tl.sum(first * first, 1) + tl.sum(second * second, 1)) / D + eps)[:, None]
    kind = out.dtype.element_ty
    # Rounded where transformers rounds: the norm, then cos and sin, in the activations' dtype.
    first = (first * scale * tl.load(weight + half)[None, :]).to(kind).to(tl.float32)
    second = (second * scale * tl.load(weight + D // 2 + half)[None, :]).to(kind).to(tl.float32)
    cos = tl.load(cosines + row * (D // 2) + half)[None, :].to(tl.float32)
    sin = tl.load(sines + row * (D // 2) + half)[None, :].to(tl.float32)
    place = to * (HEADS * D) + head[:, None] * D + half[None, :]
    tl.store(out + place, (first * cos - second * sin).to(kind), mask=inside)
    tl.store(out + place + D // 2, (second * cos + first * sin).to(kind), mask=inside)


@triton.jit
def _values(
    rows, out, row, to, eps,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, D: tl.constexpr, STRIDE: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    head = tl.arange(0, BLOCK)
    dims = tl.arange(0, D)
    inside = (head < HEADS)[:, None]
    x = tl.load(rows + row * STRIDE + OFFSET + head[:, None] * D + dims[None, :], mask=inside, other=0.0)
    x = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]
    place = to * (HEADS * D) + head[:, None] * D + dims[None, :]
    tl.store(out + place, (x * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate(gate_up, out, INNER: tl.constexpr, BLOCK: tl.constexpr, SILU: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < INNER
    x = tl.load(gate_up + row * 2 * INNER + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * INNER + INNER + column, mask=inside, other=0.0).to(tl.float32)
    if SILU:
        acted = x / (1.0 + tl.exp(-x))
    else:
        acted = x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    tl.store(out + row * INNER + column, (acted * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _after_attention(
    output, hidden, post_attention, dense, sparse, router, out, dense_out, sparse_out, router_out, eps, factor,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * WIDTH
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    kind = out.dtype.element_ty
    x = tl.load(output + row + column, mask=inside, other=0.0).to(tl.float32)
    x = x * _scale(x, eps, WIDTH) * tl.load(post_attention + column, mask=inside, other=0.0)
    x = (x.to(kind).to(tl.float32) + tl.load(hidden + row + column, mask=inside, other=0.0).to(tl.float32)).to(kind)
    tl.store(out + row + column, x, mask=inside)
    x = x.to(tl.float32)
    x = x * _scale(x, eps, WIDTH)
    tl.store(dense_out + row + column, (x * tl.load(dense + column, mask=inside, other=0.0)).to(kind), mask=inside)
    tl.store(sparse_out + row + column, (x * tl.load(sparse + column, mask=inside, other=0.0)).to(kind), mask=inside)
    routed = x.to(kind).to(tl.float32) * tl.load(router + column, mask=inside, other=0.0) * factor
    tl.store(router_out + row + column, routed.to(kind), mask=inside)


@triton.jit
def _after_experts(
    hidden, dense, sparse, dense_norm, sparse_norm, both_norm, next_norm, is_canvas, out, normed,
    encoder_scalar, decoder_scalar, eps,
    CHOICES: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64)
    row = number * WIDTH
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    kind = out.dtype.element_ty
    total = tl.zeros([BLOCK], tl.float32)
    for choice in tl.static_range(CHOICES):
        entry = (number * CHOICES + choice) * WIDTH
        total += tl.load(sparse + entry + column, mask=inside, other=0.0).to(tl.float32)
    total = total * _scale(total, eps, WIDTH) * tl.load(sparse_norm + column, mask=inside, other=0.0)
    x = tl.load(dense + row + column, mask=inside, other=0.0).to(tl.float32)
    x = x * _scale(x, eps, WIDTH) * tl.load(dense_norm + column, mask=inside, other=0.0)
    x = x.to(kind).to(tl.float32) + total.to(kind).to(tl.float32)
    x = x * _scale(x, eps, WIDTH) * tl.load(both_norm + column, mask=inside, other=0.0)
    x = x.to(kind).to(tl.float32) + tl.load(hidden + row + column, mask=inside, other=0.0).to(tl.float32)
    scalar = tl.where(tl.load(is_canvas + number) != 0, decoder_scalar, encoder_scalar)
    x = (x * scalar).to(kind)
    tl.store(out + row + column, x, mask=inside)
    x = x.to(tl.float32)
    x = x * _scale(x, eps, WIDTH) * tl.load(next_norm + column, mask=inside, other=0.0)
    tl.store(normed + row + column, x.to(kind), mask=inside)
