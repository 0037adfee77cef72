"""The warm start file: SmolLM2's first layers in their own Q4_1 blocks, pruned embeddings, and calibrated norms.

DiffusionGemma normalises what Llama does not (queries, keys, values, and each sublayer's output). Those norms start as
the RMS that the source model shows on sample text, so that they change its function as little as they can.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .backbone import Nano

__all__ = ["FRESH", "from_q4_1", "load_warm_start", "unpermute"]

FRESH = ("sc_", "expert_", "layers.12.q", "layers.12.k", "layers.12.o")
"""Prefixes or parts of the names of parameters that no source tensor fills."""


def from_q4_1(blocks: NDArray[np.uint8], shape: tuple[int, int]) -> Tensor:
    """float32 values of GGUF's Q4_1 blocks: 32 values as a half scale, a half minimum and 16 bytes of nibbles."""
    raw = blocks.reshape(-1, 20)
    scale = raw[:, :2].copy().view(np.float16).astype(np.float32)
    low = raw[:, 2:4].copy().view(np.float16).astype(np.float32)
    levels = np.concatenate([raw[:, 4:] & 15, raw[:, 4:] >> 4], 1)
    return torch.from_numpy((levels * scale + low).reshape(shape))


def unpermute(weight: Tensor, heads: int) -> Tensor:
    """GGUF interleaves the two rotary halves of each query and key head's rows; this puts them one after the other."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).transpose(1, 2).reshape(rows, columns)


def load_warm_start(model: Nano, path: Path) -> None:
    """Fills a model in place. Parameters without a source keep their random values (scaled down where they would hurt).

    Raises KeyError if the file lacks a layer the model needs.
    """
    arch = model.arch
    width, kv = arch.heads * arch.head_dim, arch.kv_heads * arch.head_dim
    with np.load(path) as z, torch.no_grad():
        device = model.norm.device
        embeddings = torch.from_numpy(z["emb.q"].astype(np.float32) * z["emb.s"])
        model.embed.weight.copy_(embeddings / math.sqrt(arch.hidden))
        model.norm.copy_(torch.from_numpy(z["norm"]) * math.sqrt(arch.hidden) * 0.25)
        copied = int(z["n"])
        for i, layer in enumerate(model.stack):
            if f"{i}.gate" not in z:
                layer.n_attention.fill_(0.1)
                layer.n_out.fill_(0.1)
                continue
            layer.gate.weight.copy_(from_q4_1(z[f"{i}.gate"], (arch.feed_forward, arch.hidden)))
            layer.up.weight.copy_(from_q4_1(z[f"{i}.up"], (arch.feed_forward, arch.hidden)))
            layer.down.weight.copy_(from_q4_1(z[f"{i}.down"], (arch.hidden, arch.feed_forward)))
            layer.n_mlp.copy_(torch.from_numpy(z[f"{i}.n_pre"]))
            layer.n_expert.copy_(torch.from_numpy(z[f"{i}.n_pre"]))
            layer.n_out.fill_(float(z[f"{i}.Rd"]))
            layer.n_expert_out.fill_(0.02)
            layer.n_in.copy_(torch.from_numpy(z[f"{i}.n_in"]))
            if i >= copied:  # the full layer has no value projection: only its MLP has a source
                layer.n_attention.fill_(0.1)
                continue
            layer.n_attention.fill_(float(z[f"{i}.Ro"]))
            layer.q.weight.copy_(unpermute(from_q4_1(z[f"{i}.q"], (width, arch.hidden)), arch.heads))
            layer.k.weight.copy_(unpermute(from_q4_1(z[f"{i}.k"], (kv, arch.hidden)), arch.kv_heads))
            if layer.v is not None:
                layer.v.weight.copy_(from_q4_1(z[f"{i}.v"], (kv, arch.hidden)))
            out = from_q4_1(z[f"{i}.o"], (arch.hidden, width))
            spread = torch.from_numpy(z[f"{i}.Rv"]).view(1, arch.kv_heads, 1, 1)
            out = out.view(arch.hidden, arch.kv_heads, -1, arch.head_dim) * spread
            layer.o.weight.copy_(out.reshape(arch.hidden, width))
            # Llama scales scores by 1/8; here the scale is 1, so the query norm carries it.
            layer.q_norm.fill_(float(z[f"{i}.Rq"].mean()) / math.sqrt(arch.head_dim))
            layer.k_norm.fill_(float(z[f"{i}.Rk"].mean()))
        for i, layer in enumerate(model.stack):
            if f"{i}.gate" in z:
                _unit_scale(layer.n_in, [])
                _unit_scale(layer.n_mlp, [layer.gate, layer.up])
                layer.n_expert.fill_(1.0)
            # Every output of these is normalised: their scale is free, and decides only how fast they learn.
            for linear in (layer.q, layer.k, layer.v, layer.o, layer.down):
                if linear is not None:
                    linear.weight.div_(linear.weight.pow(2).mean().sqrt() * linear.in_features**0.5)
        model.sc_norm.fill_(1.0)
        model.sc_down.weight.mul_(0.1)
        model.to(device)


def _unit_scale(norm: Tensor, readers: list[torch.nn.Linear]) -> None:
    """Moves a norm's scale into the matrices that read it (if their scale matters): the same function.

    The source's first norm is about 0.001, less than two steps of the optimiser: it would be noise at once.
    """
    scale = norm.pow(2).mean().sqrt().item()
    norm.div_(scale)
    for linear in readers:
        linear.weight.mul_(scale)
