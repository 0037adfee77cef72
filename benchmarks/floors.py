"""What a workload costs at least: arithmetic and memory traffic on one H200, from the shapes alone.

    FLOPs of a row    2 * (query + key/value + output + dense MLP + chosen experts + router weights), all layers
    attention         4 * heads * head_dim * keys that the row sees, windows respected
    slot rows         2 * vocab * hidden for the head each step, and again for the soft embedding before a next step
    canvas rows       2 * 3 * hidden * inner for the self-conditioning MLP before a next step
    rows              a state once per request (once per case where requests share it), each suffix once, each canvas
                      token once per step
    bytes             every weight that a step needs, once per step (experts: the distinct ones that its rows choose),
                      if all requests fitted into one pass

The floor is the larger of FLOPs at 790 TFLOP/s (measured bf16 product) and bytes at 4.3 TB/s (measured copy).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from openjev_server.engine.config import BackboneConfig, LayerConfig
from openjev_server.engine.protocol import EngineRequest

from benchmarks.results import DIRECTORY

__all__ = [
    "BYTES_PER_S",
    "FLOPS_PER_S",
    "Curve",
    "Floor",
    "floor_of",
    "row_flops",
    "saved_curve",
    "touched_curve",
    "weight_bytes",
]

Curve = Callable[[int], Sequence[float]]
"""From the rows of a pass to the distinct experts that they choose, layer by layer."""
FLOPS_PER_S = 790e12
BYTES_PER_S = 4.3e12


@dataclass(frozen=True, slots=True)
class Floor:
    """The least work of a workload."""

    rows: int
    """Rows through the layers, all steps."""
    linear_flops: float
    attention_flops: float
    head_flops: float
    weight_bytes: float

    @property
    def seconds(self) -> float:
        flops = self.linear_flops + self.attention_flops + self.head_flops
        return max(flops / FLOPS_PER_S, self.weight_bytes / BYTES_PER_S)

    def as_dict(self) -> dict[str, float]:
        flops = self.linear_flops + self.attention_flops + self.head_flops
        return {
            "rows": self.rows,
            "tflop": round(flops / 1e12, 3),
            "attention_tflop": round(self.attention_flops / 1e12, 3),
            "weight_gb": round(self.weight_bytes / 1e9, 3),
            "flops_s": round(flops / FLOPS_PER_S, 5),
            "bytes_s": round(self.weight_bytes / BYTES_PER_S, 5),
            "floor_s": round(self.seconds, 5),
        }


def _attention_weights(config: BackboneConfig, layer: LayerConfig) -> int:
    keys = layer.kv_heads * layer.head_dim * (1 if layer.full else 2)
    return config.hidden_size * (2 * config.heads * layer.head_dim + keys)


def _row_weights(config: BackboneConfig) -> int:
    """Weights that one row multiplies with, all layers."""
    hidden = config.hidden_size
    shared = 3 * hidden * config.intermediate_size + hidden * config.experts
    routed = 3 * hidden * config.expert_size * config.experts_per_token
    return sum(_attention_weights(config, layer) + shared + routed for layer in config.layers)


def row_flops(config: BackboneConfig) -> int:
    """FLOPs of the linear maps of one row."""
    return 2 * _row_weights(config)


def weight_bytes(config: BackboneConfig, experts: Sequence[float], per_weight: float = 2.0) -> float:
    """Bytes that one pass reads: `experts` distinct ones of each layer, everything else once, the tied head too.

    `per_weight` is for the layers' matrices (1 in FP8, 0.5625 in 4 bits); embedding and router stay in bf16.
    """
    hidden = config.hidden_size
    one = 3 * hidden * config.expert_size
    matrices = sum(
        _attention_weights(config, layer) + 3 * hidden * config.intermediate_size + count * one
        for layer, count in zip(config.layers, experts, strict=True)
    )
    plain = hidden * config.experts * len(config.layers) + config.vocab_size * hidden
    return matrices * per_weight + plain * 2.0


def _causal(first: int, last: int, window: int | None) -> int:
    """Keys that rows at positions [first, last) see in a causal sequence from 0."""
    seen = np.arange(first + 1, last + 1, dtype=np.int64)
    return int((seen if window is None else np.minimum(seen, window)).sum())


def _keys(request: EngineRequest, window: int | None, *, state: bool) -> tuple[int, int]:
    """(keys seen by encoder rows, keys seen by canvas rows in one step)."""
    length = len(request.state)
    encoder = _causal(0, length, window) if state else 0
    canvas = 0
    for block in request.blocks:
        prompt = length + len(block.suffix)
        encoder += _causal(length, prompt, window)
        replicas, width = block.canvases.shape
        seen = prompt if window is None else min(prompt, window - 1)
        canvas += replicas * width * (seen + width)
    return encoder, canvas


def floor_of(
    config: BackboneConfig,
    requests: Sequence[EngineRequest],
    *,
    share_states: bool = True,
    per_weight: float = 2.0,
    experts: Curve | None = None,
) -> Floor:
    """The floor of evaluating these requests together.

    `share_states`: requests with equal states read them once. `experts` gives the distinct experts per layer that a
    pass of so many rows touches; None takes all of them.
    """
    known: set[bytes] = set()
    encoder = canvas = later = slot_reads = soft = 0
    attention = 0.0
    canvas_by_step: list[int] = [0] * max((request.steps for request in requests), default=1)
    for request in requests:
        key = request.state.tobytes()
        fresh = not (share_states and key in known)
        known.add(key)
        own = sum(block.canvases.size for block in request.blocks)
        slots = sum(len(block.slots) * block.canvases.shape[0] for block in request.blocks)
        encoder += (len(request.state) if fresh else 0) + sum(len(block.suffix) for block in request.blocks)
        canvas += own * request.steps
        later += own * (request.steps - 1)
        slot_reads += slots * request.steps
        soft += slots * (request.steps - 1)
        for step in range(request.steps):
            canvas_by_step[step] += own
        for layer in config.layers:
            seen, step_keys = _keys(request, None if layer.full else config.window, state=fresh)
            attention += 4.0 * config.heads * layer.head_dim * (seen + step_keys * request.steps)
    touched = experts or (lambda _rows: [float(config.experts)] * len(config.layers))
    read = sum(
        weight_bytes(config, touched(encoder + rows if step == 0 else rows), per_weight)
        for step, rows in enumerate(canvas_by_step)
    )
    conditioning = 2.0 * 3 * config.hidden_size * config.intermediate_size * later
    return Floor(
        rows=encoder + canvas,
        linear_flops=float(row_flops(config)) * (encoder + canvas) + conditioning,
        attention_flops=attention,
        head_flops=2.0 * config.vocab_size * config.hidden_size * (slot_reads + soft),
        weight_bytes=read,
    )


def touched_curve(measured: Mapping[int, Sequence[int]]) -> Curve:
    """Distinct experts per layer for any number of rows, interpolated in the logarithm between measured ones."""
    sizes = sorted(measured)
    table = np.array([measured[size] for size in sizes], dtype=float)

    def at(rows: int) -> list[float]:
        where = np.log2(max(rows, 1))
        return [float(np.interp(where, np.log2(sizes), column)) for column in table.T]

    return at


def saved_curve(config: BackboneConfig, path: Path = DIRECTORY / "replay408-rule.json") -> Curve | None:
    """The curve that `replay408` measured and kept; None before, and for a model with other layers or experts."""
    if not path.is_file():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["tiny"] or "experts_touched" not in kept:
        return None
    measured = {int(rows): counts for rows, counts in kept["experts_touched"].items()}
    if any(len(counts) != len(config.layers) or max(counts) > config.experts for counts in measured.values()):
        return None
    return touched_curve(measured)
