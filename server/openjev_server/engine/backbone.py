"""The DiffusionGemma text backbone over packed rows: no batch dimension, no padding.

Encoder and decoder share every weight but the per-layer scalars and the self-conditioning MLP, so one forward serves
rows of both kinds. Norms, softmax and logits are computed in float32, as transformers does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from openjev_server.engine.config import BackboneConfig, LayerConfig, RopeConfig
from openjev_server.engine.experts import mixture
from openjev_server.engine.matrix import linear
from openjev_server.engine.ops import gated, rms, unit
from openjev_server.engine.weights import BackboneWeights, LayerWeights

__all__ = ["Backbone", "DeviceTile", "KeyValues", "Rows"]

MLP_ROWS = 320
"""Rows that go through a dense MLP at a time on a CPU: what is between its two products then stays in the caches."""


@dataclass(frozen=True, slots=True)
class DeviceTile:
    """A `tiles.Tile` on the device; `queries` are places in the rows at hand, `keys` rows of the key pool."""

    queries: torch.Tensor | slice
    keys: torch.Tensor | slice
    mask: torch.Tensor


@dataclass(slots=True)
class KeyValues:
    """One layer's part of the key pool, [capacity, kv heads, head dim] each."""

    keys: torch.Tensor
    values: torch.Tensor


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one forward: all of a pass in its first step, the canvases alone in the later ones."""

    positions: torch.Tensor
    """[n]"""
    is_canvas: torch.Tensor
    """[n] bool"""
    store: torch.Tensor
    """[n] the pool row of each row's keys and values"""
    wanted: torch.Tensor
    """[m] the rows whose final hidden state is read (the slots)"""
    sliding: Sequence[DeviceTile]
    full: Sequence[DeviceTile]
    last: Sequence[DeviceTile]
    """The last layer's tiles: queries are places in `wanted`."""


class Backbone:
    """Weights and the forward pass. Holds no state between calls."""

    def __init__(self, config: BackboneConfig, weights: BackboneWeights) -> None:
        self.config = config
        self.weights = weights
        # transformers rounds the scale to the weights' dtype (sqrt(2816) = 53.066 is 53.0 in bf16).
        self._embedding_scale = torch.tensor(config.hidden_size**0.5).to(self.dtype).to(self.device)

    @property
    def device(self) -> torch.device:
        return self.weights.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        return self.weights.embedding.dtype

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token ids [n] -> scaled embeddings [n, hidden]."""
        return functional.embedding(tokens, self.weights.embedding) * self._embedding_scale

    def soft_embed(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Distributions over the vocabulary [n, vocab] -> expected scaled embeddings [n, hidden]."""
        return (probabilities.to(self.dtype) @ self.weights.embedding) * self._embedding_scale

    def condition(self, embedded: torch.Tensor, soft: torch.Tensor | None) -> torch.Tensor:
        """Canvas rows before the first layer: post-norm of embedding + MLP(previous step's soft embedding).

        `soft` None is the first step: a soft embedding of zero, whose MLP output is zero.
        """
        if soft is not None:
            weights = self.weights.self_conditioning
            normed = rms(soft, weights.norm, self.config.rms_eps)
            inner = gated(self.config.activation, linear(normed, weights.gate_up))
            embedded = embedded + linear(inner, weights.down)
        return rms(embedded, None, self.config.rms_eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Final hidden states [n, hidden] -> soft-capped logits over the vocabulary [n, vocab], float32."""
        cap = self.config.softcap
        return linear(hidden, self.weights.embedding).float().div_(cap).tanh_().mul_(cap)

    def forward(self, hidden: torch.Tensor, rows: Rows, store: list[KeyValues]) -> torch.Tensor:
        """Runs all layers over `hidden` [n, hidden]; returns the normed final states of the wanted rows [m, hidden].

        `store` is the key pool, one entry per layer, written in place: rows put their keys and values at `rows.store`.
        """
        ropes = {
            (layer.rope, layer.head_dim): _rope(layer.rope, layer.head_dim, rows.positions, self.dtype)
            for layer in self.config.layers
        }
        final = len(self.config.layers) - 1
        for index, (config, weights) in enumerate(zip(self.config.layers, self.weights.layers, strict=True)):
            cos, sin = ropes[config.rope, config.head_dim]
            normed = rms(hidden, weights.norms["input_layernorm"], self.config.rms_eps)
            self._write_keys(config, weights, normed, cos, sin, rows.store, store[index])
            is_canvas = rows.is_canvas
            tiles = rows.full if config.full else rows.sliding
            if index == final:
                # Nothing after the last layer reads the other rows: their keys and values were all they owed.
                keep = rows.wanted
                hidden, normed, cos, sin, is_canvas = (
                    tensor[keep] for tensor in (hidden, normed, cos, sin, rows.is_canvas)
                )
                tiles = rows.last
            hidden = self._attend(config, weights, normed, cos, sin, tiles, store[index]).add_(hidden)
            hidden = self._feed_forward(weights, hidden, is_canvas)
        return rms(hidden, self.weights.norm, self.config.rms_eps)

    def _write_keys(
        self,
        config: LayerConfig,
        weights: LayerWeights,
        normed: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        places: torch.Tensor,
        store: KeyValues,
    ) -> None:
        shape = (-1, config.kv_heads, config.head_dim)
        projected = linear(normed, weights.key_value)
        raw = projected.chunk(1 if config.full else 2, dim=-1)
        keys, values = raw[0].reshape(shape), raw[-1].reshape(shape)
        eps = self.config.rms_eps
        store.keys.index_copy_(0, places, _rotate(rms(keys, weights.key_norm, eps), cos, sin))
        store.values.index_copy_(0, places, rms(values, None, eps))

    def _attend(
        self,
        config: LayerConfig,
        weights: LayerWeights,
        normed: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        tiles: Sequence[DeviceTile],
        store: KeyValues,
    ) -> torch.Tensor:
        queries = linear(normed, weights.query).view(-1, self.config.heads, config.head_dim)
        queries = _rotate(rms(queries, weights.query_norm, self.config.rms_eps), cos, sin)
        mixed = torch.empty_like(queries)
        for tile in tiles:
            attended = functional.scaled_dot_product_attention(
                _taken(queries, tile.queries).transpose(0, 1)[None],
                _taken(store.keys, tile.keys).transpose(0, 1)[None],
                _taken(store.values, tile.keys).transpose(0, 1)[None],
                attn_mask=tile.mask[None, None],
                scale=1.0,
                enable_gqa=config.kv_heads != self.config.heads,
            )
            mixed[tile.queries] = attended[0].transpose(0, 1)
        output = linear(mixed.flatten(1), weights.output)
        return rms(output, weights.norms["post_attention_layernorm"], self.config.rms_eps)

    def _feed_forward(self, weights: LayerWeights, hidden: torch.Tensor, is_canvas: torch.Tensor) -> torch.Tensor:
        eps, norms = self.config.rms_eps, weights.norms
        normed = unit(hidden, eps)
        dense = self._dense(weights, (normed * norms["pre_feedforward_layernorm"]).to(hidden.dtype))
        dense = rms(dense, norms["post_feedforward_layernorm_1"], eps)
        routed = normed.mul_(norms["pre_feedforward_layernorm_2"]).to(hidden.dtype)
        sparse = mixture(self.config, weights, hidden, routed)
        sparse = rms(sparse, norms["post_feedforward_layernorm_2"], eps)
        hidden = rms(dense.add_(sparse), norms["post_feedforward_layernorm"], eps).add_(hidden)
        if weights.encoder_scalar == weights.decoder_scalar == 1.0:
            return hidden
        scalar = torch.where(is_canvas, weights.decoder_scalar, weights.encoder_scalar)
        return hidden.mul_(scalar[:, None].to(hidden.dtype))

    def _dense(self, weights: LayerWeights, normed: torch.Tensor) -> torch.Tensor:
        """The dense MLP of [n, hidden]."""
        parts = -(-len(normed) // MLP_ROWS) if normed.device.type == "cpu" else 1
        outputs = [
            linear(gated(self.config.activation, linear(part, weights.gate_up)), weights.down)
            for part in normed.tensor_split(max(1, parts))
        ]
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _rope(
    rope: RopeConfig, head_dim: int, positions: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [n, 1, head_dim] as `_rotate` wants them: the first half of sin is negative.

    The frequencies past the rotating share are 0 ("proportional" RoPE).
    """
    rotating = int(rope.partial * head_dim // 2)
    frequencies = torch.zeros(head_dim // 2, device=positions.device)
    exponents = torch.arange(0, 2 * rotating, 2, device=positions.device, dtype=torch.float32) / head_dim
    frequencies[:rotating] = 1.0 / rope.theta**exponents
    angles = torch.outer(positions.float(), frequencies)[:, None, :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((-sin, sin), dim=-1).to(dtype)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x * cos + (-second half of x, first half) * |sin|."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)


def _taken(rows: torch.Tensor, places: torch.Tensor | slice) -> torch.Tensor:
    """rows[places]; a CPU gathers whole rows several times faster by `index_select`."""
    return rows[places] if isinstance(places, slice) else rows.index_select(0, places)
