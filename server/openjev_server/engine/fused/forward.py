"""The forward pass over packed rows in fused kernels. It never returns to the host, so that a graph can capture it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from openjev_server.engine.backbone import Backbone, KeyValues
from openjev_server.engine.config import LayerConfig, RopeConfig
from openjev_server.engine.fused import elementwise
from openjev_server.engine.fused.attention import TILE_FIELDS, PassColumns, attend
from openjev_server.engine.fused.experts import experts
from openjev_server.engine.fused.layout import Sizes
from openjev_server.engine.fused.linear import project
from openjev_server.engine.fused.routing import route
from openjev_server.engine.weights import LayerWeights

__all__ = ["Forward"]


class Forward:
    """Runs the backbone's layers. `touched`, when set to a list, collects every layer's entries per expert."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._config = backbone.config
        self._silu = backbone.config.activation == "silu"
        self._frequencies = {
            (layer.rope, layer.head_dim): _frequencies(layer.rope, layer.head_dim, backbone.device)
            for layer in backbone.config.layers
        }
        self.touched: list[torch.Tensor] | None = None

    @property
    def hidden_size(self) -> int:
        return self._config.hidden_size

    def __call__(
        self, buffer: torch.Tensor, sizes: Sizes, pool: list[KeyValues], soft: torch.Tensor | None, *, padded: bool
    ) -> torch.Tensor:
        """Normed final hidden states [m, hidden] of the wanted rows.

        `buffer` is a `layout` buffer of these sizes on the device; `soft` [m, hidden] makes it a later step.
        """
        view = _View(buffer, sizes)
        config, layers = self._config, self._backbone.weights.layers
        is_canvas = view["is_canvas"]
        hidden = self._enter(view, soft)
        positions = view["position"].float()
        ropes = {key: _rope(positions, f, hidden.dtype) for key, f in self._frequencies.items()}
        columns = view.pass_columns()
        eps = config.rms_eps
        rows, last = view["rows"], len(layers) - 1
        normed = elementwise.norm(hidden, layers[0].norms["input_layernorm"], eps)
        for number, (layer, weights) in enumerate(zip(config.layers, layers, strict=True)):
            cos, sin = ropes[layer.rope, layer.head_dim]
            (projected,) = project(normed, weights.key_value)
            keys, values = pool[number].keys, pool[number].values
            elementwise.place_keys(projected, weights.key_norm, cos, sin, view["store"], keys, values, eps)
            tiles = view.tiles("full" if layer.full else "sliding")
            if number == last:
                # Nothing after the last layer reads the other rows: their keys and values were all they owed.
                wanted = view["wanted"].long()
                if not len(wanted):
                    return hidden[:0]
                hidden, normed, cos, sin, is_canvas = (t[wanted] for t in (hidden, normed, cos, sin, is_canvas))
                rows, tiles = view["wanted_rows"], view.tiles("last")
            (queries,) = project(normed, weights.query)
            queries = queries.view(-1, config.heads, layer.head_dim)
            queries = elementwise.rotate_queries(queries, weights.query_norm, cos, sin, eps)
            window = None if layer.full else config.window
            mixed = attend(queries, keys, values, rows, columns, tiles, window, padded=padded)
            (output,) = project(mixed.flatten(1), weights.output)
            follower = layers[number + 1].norms["input_layernorm"] if number < last else self._backbone.weights.norm
            hidden, normed = self._feed_forward(layer, weights, hidden, output, is_canvas, follower)
        return normed

    def _enter(self, view: _View, soft: torch.Tensor | None) -> torch.Tensor:
        """Rows before the first layer: embeddings, the canvas's conditioned."""
        backbone = self._backbone
        embedded = backbone.embed(view["tokens"])
        if soft is None:
            canvas = (view["is_canvas"] != 0)[:, None]
            return torch.where(canvas, backbone.condition(embedded, None), embedded)
        frozen = embedded * view["on_own_token"][:, None]
        return backbone.condition(embedded, frozen.index_copy(0, view["wanted"].long(), soft))

    def _feed_forward(
        self,
        layer: LayerConfig,
        weights: LayerWeights,
        hidden: torch.Tensor,
        output: torch.Tensor,
        is_canvas: torch.Tensor,
        follower: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        config, norms, eps = self._config, weights.norms, self._config.rms_eps
        hidden, dense, sparse, routed = elementwise.after_attention(
            output,
            hidden,
            norms["post_attention_layernorm"],
            norms["pre_feedforward_layernorm"],
            norms["pre_feedforward_layernorm_2"],
            weights.router_scale,
            eps,
        )
        (scores,) = project(routed, weights.router)
        k = min(config.experts_per_token, config.experts)
        routing = route(scores, weights.expert_scale, k)
        if self.touched is not None:
            self.touched.append(routing.counts)
        sparse = experts(sparse, routing, weights.expert_gate_up, weights.expert_down, k=k, silu=self._silu)
        (dense,) = project(dense, weights.gate_up)
        (dense,) = project(elementwise.gate(dense, silu=self._silu), weights.down)
        return elementwise.after_experts(
            hidden,
            dense,
            sparse,
            norms["post_feedforward_layernorm_1"],
            norms["post_feedforward_layernorm_2"],
            norms["post_feedforward_layernorm"],
            follower,
            is_canvas,
            weights.encoder_scalar,
            weights.decoder_scalar,
            eps,
        )


@dataclass(frozen=True)
class _View:
    """The columns of a buffer on the device."""

    buffer: torch.Tensor
    sizes: Sizes

    def __getitem__(self, name: str) -> torch.Tensor:
        start, length = self.sizes.offsets()[name], self.sizes.lengths()[name]
        return self.buffer[start : start + length]

    def tiles(self, name: str) -> torch.Tensor:
        return self[name].view(-1, TILE_FIELDS)

    def pass_columns(self) -> PassColumns:
        names = ("anchor", "position", "segment", "copy", "store")
        return PassColumns(**{name: self[f"pass_{name}"] for name in names}, table=self["table"])


def _frequencies(rope: RopeConfig, head_dim: int, device: torch.device) -> torch.Tensor:
    """[head_dim / 2]; 0 past the rotating share ("proportional" RoPE)."""
    rotating = int(rope.partial * head_dim // 2)
    frequencies = torch.zeros(head_dim // 2)
    frequencies[:rotating] = 1.0 / rope.theta ** (torch.arange(0, 2 * rotating, 2, dtype=torch.float32) / head_dim)
    return frequencies.to(device)


def _rope(positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.outer(positions, frequencies)
    return angles.cos().to(dtype), angles.sin().to(dtype)
