"""From weights to an engine: which backend computes, and how large its key pool is."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from openjev_server.engine.backbone import Backbone
from openjev_server.engine.backend import Backend
from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.protocol import EngineInfo
from openjev_server.engine.torch_backend import TorchBackend
from openjev_server.engine.torch_engine import TorchEngine

__all__ = ["assemble", "default_cache_bytes", "row_bytes"]

CPU_CACHE_BYTES = 256 << 20
MOST_CACHED_ROWS = 1 << 18
"""Tokens that the default cache holds at most: a small model would otherwise take a large GPU for itself."""
FREE_SHARE = 0.4
"""Of a GPU's free memory after the weights, what cached states may take by default: the rest is for passes."""


def assemble(
    backbone: Backbone,
    info: EngineInfo,
    *,
    token_budget: int,
    request_rows: int = 0,
    cache_bytes: int | None = None,
    fused: bool | None = None,
) -> TorchEngine:
    """An engine over the weights.

    Args:
        backbone: the weights, on their device.
        info: what the engine says about itself.
        token_budget: rows of one pass.
        request_rows: rows of the longest request (its state and one block) that must be accepted.
        cache_bytes: what cached states may take of the device's memory; None chooses (`default_cache_bytes`).
        fused: whether Triton's kernels compute; None: where the device and the model's sizes allow it.
    """
    per_row = row_bytes(backbone.config, backbone.dtype)
    if cache_bytes is None:
        cache_bytes = min(default_cache_bytes(backbone.device), MOST_CACHED_ROWS * per_row)
    backend: Backend
    if fused if fused is not None else _can_fuse(backbone):
        from openjev_server.engine.fused.backend import FusedBackend  # triton is there on CUDA machines only

        backend = FusedBackend(backbone)
    else:
        backend = TorchBackend(backbone)
    return TorchEngine(
        backend,
        info,
        token_budget=token_budget,
        cache_rows=cache_bytes // per_row,
        request_rows=request_rows,
    )


def row_bytes(config: BackboneConfig, dtype: torch.dtype) -> int:
    """Bytes of one token's keys and values in all layers."""
    return sum(2 * layer.kv_heads * layer.head_dim for layer in config.layers) * dtype.itemsize


def default_cache_bytes(device: torch.device) -> int:
    """What cached states may take where nothing else is said."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * FREE_SHARE)
    return CPU_CACHE_BYTES


def _can_fuse(backbone: Backbone) -> bool:
    """Kernels need a GPU with bf16 tensor cores, and sizes that are powers of two where they index with arange."""
    if backbone.device.type != "cuda" or backbone.dtype != torch.bfloat16 or find_spec("triton") is None:
        return False
    sizes = [layer.head_dim for layer in backbone.config.layers]
    sizes += [backbone.config.heads // layer.kv_heads for layer in backbone.config.layers]
    sizes += [backbone.config.experts]
    return all(size & (size - 1) == 0 for size in sizes)
