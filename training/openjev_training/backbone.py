"""The embedded model for training: DiffusionGemma's text layers over ONE packed sequence, no batch dimension.

Encoder rows (state, questions) and canvas rows share every weight; canvas rows add self-conditioning and enter as
RMS-normalised embeddings. `named_tensors` gives the tensors the names of transformers' class, which reads them back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch calls it
from torch import Tensor, nn

from .architecture import Architecture
from .mixture import Mixture, Routed, rms

__all__ = ["Attend", "Nano", "load_named_tensors", "may_attend", "named_tensors"]

Attend = Callable[[Tensor, Tensor, Tensor, Any], Tensor]
"""(queries [1, heads, T, d], keys [1, kv, T, d], values [1, kv, T, d], mask) -> [1, heads, T, d], scale 1."""


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def _rope(arch: Architecture, full: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    dim = arch.head_dim
    turning = int(arch.partial_rotary * dim // 2) if full else dim // 2
    inverse = torch.zeros(dim // 2, device=device)
    inverse[:turning] = arch.rope_theta ** (-torch.arange(0, 2 * turning, 2, device=device).float() / dim)
    angle = torch.outer(torch.arange(arch.max_positions, device=device).float(), inverse)
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def may_attend(doc: Tensor, segment: Tensor, canvas: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Isolation in a packed sequence, for row indices q and keys k (broadcast), as booleans.

    Encoder rows are causal over their document's state and their own question; canvas rows see state, their own
    question and their own block in both directions. `segment` is 0 in a state and counts its questions from 1.
    """
    same = doc[q] == doc[k]
    encoder = (~canvas[q]) & (~canvas[k]) & ((segment[k] == 0) | (segment[k] == segment[q])) & (k <= q)
    block = canvas[q] & ((segment[k] == segment[q]) | (segment[k] == 0))
    return same & (encoder | block)


class Layer(nn.Module):
    """One decoder layer: a dense MLP, and beside it one expert without a router (the class needs one) or several."""

    def __init__(self, arch: Architecture, index: int) -> None:
        super().__init__()
        self.arch, self.full = arch, arch.is_full(index)

        def linear(rows: int, columns: int) -> nn.Linear:
            return nn.Linear(rows, columns, bias=False)

        def scale(size: int, value: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.full((size,), value))

        width, kv = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
        self.q, self.k, self.o = linear(arch.hidden, width), linear(arch.hidden, kv), linear(width, arch.hidden)
        self.v = None if self.full else linear(arch.hidden, kv)
        self.q_norm = scale(arch.head_dim, arch.head_dim**-0.25)
        self.k_norm = scale(arch.head_dim, arch.head_dim**-0.25)
        self.n_in, self.n_attention, self.n_mlp, self.n_expert = (scale(arch.hidden) for _ in range(4))
        self.n_mlp_out, self.n_expert_out, self.n_out = (scale(arch.hidden) for _ in range(3))
        self.gate, self.up = linear(arch.hidden, arch.feed_forward), linear(arch.hidden, arch.feed_forward)
        self.down = linear(arch.feed_forward, arch.hidden)
        self.mixture = Mixture(arch) if arch.experts > 1 else None
        if self.mixture is None:
            self.expert_in, self.expert_out = linear(arch.hidden, 2 * arch.expert), linear(arch.expert, arch.hidden)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend, mask: Any, routed: list[Routed] | None = None
    ) -> Tensor:
        arch, rows = self.arch, x.shape[0]
        h = rms(x, self.n_in)
        q = _rotate(rms(self.q(h).view(rows, arch.heads, arch.head_dim), self.q_norm), cos, sin)
        raw = self.k(h).view(rows, arch.kv_heads, arch.head_dim)
        k = _rotate(rms(raw, self.k_norm), cos, sin)
        v = rms(raw if self.v is None else self.v(h).view(rows, arch.kv_heads, arch.head_dim))
        a = attend(q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], mask)
        x = x + rms(self.o(a[0].transpose(0, 1).reshape(rows, -1)), self.n_attention)
        y = rms(x, self.n_mlp)
        dense = rms(self.down(F.silu(self.gate(y)) * self.up(y)), self.n_mlp_out)
        entering = rms(x, self.n_expert)
        if self.mixture is None:
            gate, up = self.expert_in(entering).chunk(2, -1)
            sparse = self.expert_out(F.silu(gate) * up)
        else:
            sparse, routing = self.mixture(x, entering)
            if routed is not None:
                routed.append(routing)
        return x + rms(dense + rms(sparse, self.n_expert_out), self.n_out)


class Nano(nn.Module):
    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.arch = arch
        self.embed = nn.Embedding(arch.vocab, arch.hidden)
        self.layers = nn.ModuleList(Layer(arch, i) for i in range(arch.layers))
        self.norm = nn.Parameter(torch.ones(arch.hidden))
        self.sc_norm = nn.Parameter(torch.ones(arch.hidden))
        self.sc_gate = nn.Linear(arch.hidden, arch.feed_forward, bias=False)
        self.sc_up = nn.Linear(arch.hidden, arch.feed_forward, bias=False)
        self.sc_down = nn.Linear(arch.feed_forward, arch.hidden, bias=False)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                nn.init.normal_(p, std=0.02 if name.startswith("embed") else p.shape[1] ** -0.5)

    @property
    def stack(self) -> list[Layer]:
        """The layers with their type, which `nn.ModuleList` forgets."""
        return cast(list[Layer], list(self.layers))

    def rope(self, positions: Tensor, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Cosines and sines [T, 1, head_dim] of the sliding and of the full layers."""
        out = []
        for full in (False, True):
            cos, sin = _rope(self.arch, full, positions.device)
            out.append((cos[positions][:, None].to(dtype), sin[positions][:, None].to(dtype)))
        return out[0], out[1]

    def forward(
        self,
        ids: Tensor,
        positions: Tensor,
        canvas: Tensor,
        attend: Attend,
        mask: Any,
        conditioning: tuple[Tensor, Tensor] | None = None,
        routed: list[Routed] | None = None,
    ) -> Tensor:
        """Hidden states [T, hidden]. `routed` collects where each layer's router sent the rows.

        `conditioning` are slot rows [S] and the soft embeddings [S, hidden] of the step before; None on step 1, which
        equals a soft embedding of zero. Frozen canvas rows are conditioned on nothing.
        """
        x = self.embed(ids) * math.sqrt(self.arch.hidden)
        if conditioning is not None:
            slots, soft = conditioning
            n = rms(soft, self.sc_norm)
            x = x.index_add(0, slots, self.sc_down(F.silu(self.sc_gate(n)) * self.sc_up(n)).to(x.dtype))
        x = torch.where(canvas[:, None], rms(x), x)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.bfloat16)
        sliding, full = self.rope(positions, x.dtype)
        for layer in self.stack:
            cos, sin = full if layer.full else sliding
            x = layer(x, cos, sin, attend, mask, routed)
        return rms(x, self.norm)

    def logits(self, h: Tensor) -> Tensor:
        """Soft-capped float32 logits [rows, vocab] of hidden states [rows, hidden]."""
        return self.arch.softcap * torch.tanh((h @ self.embed.weight.to(h.dtype).T).float() / self.arch.softcap)

    def soft_embedding(self, logits: Tensor) -> Tensor:
        """What self-conditioning reads of the previous step's logits: softmax @ embeddings * sqrt(hidden)."""
        weight = self.embed.weight.to(torch.bfloat16) if logits.is_cuda else self.embed.weight
        return (logits.softmax(-1).to(weight.dtype) @ weight).float() * math.sqrt(self.arch.hidden)


_NORMS = {
    "n_in": "input_layernorm",
    "n_attention": "post_attention_layernorm",
    "n_mlp": "pre_feedforward_layernorm",
    "n_expert": "pre_feedforward_layernorm_2",
    "n_mlp_out": "post_feedforward_layernorm_1",
    "n_expert_out": "post_feedforward_layernorm_2",
    "n_out": "post_feedforward_layernorm",
}


def named_tensors(model: Nano) -> dict[str, Tensor]:
    """float32 CPU tensors under `DiffusionGemmaForBlockDiffusion`'s names (decoder side, the encoder ties to it)."""
    return {name: tensor.detach().float().cpu().contiguous() for name, tensor in _named(model).items()}


def load_named_tensors(model: Nano, tensors: Mapping[str, Tensor]) -> None:
    """Fills a model in place. Raises KeyError for a missing tensor, ValueError for a layer scalar other than 1."""
    with torch.no_grad():
        for name, tensor in _named(model).items():
            if name.endswith("layer_scalar"):
                if tensors[name].item() != 1:
                    raise ValueError(f"{name} is not 1: training has no layer scalars")
            else:
                tensor.copy_(tensors[name])


def _named(model: Nano) -> dict[str, Tensor]:
    """The parameters themselves, or views of them; constants where the class has a tensor and the model has none."""
    out: dict[str, Tensor] = {}
    root = "model.decoder."
    out[root + "embed_tokens.weight"] = model.embed.weight
    out[root + "norm.weight"] = model.norm
    out[root + "self_conditioning.pre_norm.weight"] = model.sc_norm
    for name in ("gate", "up", "down"):
        out[f"{root}self_conditioning.{name}_proj.weight"] = getattr(model, f"sc_{name}").weight
    for i, layer in enumerate(model.stack):
        p = f"{root}layers.{i}."
        for name in ("q", "k", "v", "o"):
            if (linear := getattr(layer, name)) is not None:
                out[f"{p}self_attn.{name}_proj.weight"] = linear.weight
        out[p + "self_attn.q_norm.weight"], out[p + "self_attn.k_norm.weight"] = layer.q_norm, layer.k_norm
        for name in ("gate", "up", "down"):
            out[f"{p}mlp.{name}_proj.weight"] = getattr(layer, name).weight
        for attribute, name in _NORMS.items():
            out[f"{p}{name}.weight"] = getattr(layer, attribute)
        if (mixture := layer.mixture) is None:
            out[p + "experts.gate_up_proj"] = layer.expert_in.weight[None]
            out[p + "experts.down_proj"] = layer.expert_out.weight[None]
            out[p + "router.proj.weight"] = torch.zeros(1, model.arch.hidden)
            out[p + "router.scale"] = torch.ones(model.arch.hidden)
            out[p + "router.per_expert_scale"] = torch.ones(1)
        else:
            out[p + "experts.gate_up_proj"], out[p + "experts.down_proj"] = mixture.gate_up, mixture.down
            out[p + "router.proj.weight"], out[p + "router.scale"] = mixture.router, mixture.scale
            out[p + "router.per_expert_scale"] = mixture.expert_scale
        out[p + "layer_scalar"] = torch.ones(1)
        out[f"model.encoder.language_model.layers.{i}.layer_scalar"] = torch.ones(1)
    return out
