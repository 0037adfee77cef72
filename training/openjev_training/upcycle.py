"""A mixture of experts out of the embedded checkpoint, and its training.

For checks where random weights say nothing. Every dense MLP is copied into 8 experts, each with noise of its own, a
random router sends a row to 2 of them, and the sum of both paths has the size that the dense path had: the model still
answers sensibly. Training then makes experts and routers differ for a reason. The target is a checkpoint directory that
`openjev serve --model` opens.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from openjev_server.bundle import EMBEDDED_MODEL, resolve_model
from openjev_server.engine.loading import open_checkpoint, read_tensors
from openjev_server.engine.tensors import layer_name
from safetensors.torch import save_file
from torch import Tensor

from .architecture import Architecture
from .backbone import Nano, load_named_tensors, named_tensors
from .device import DeviceBatch, Runner, to_device
from .journal import Log
from .mixture import Routed, shares
from .packing import Encoder
from .plan import Phase, Settings
from .prepare import load_rows, load_texts
from .reading import Reader
from .sampler import MIXTURES, Sampler
from .train import Stream, run_phase, slot_loss

__all__ = ["train_upcycled", "upcycle", "upcycled"]

EXPERTS = 8
CHOSEN = 2
NOISE = 0.2
"""Of a matrix's own standard deviation."""
ROUTER_STD = 1.5
"""A router reads rows of length 1, so this is the spread of its scores: the two chosen take most of the weight."""
COMPANIONS = ("tokenizer.json", "tokenizer_config.json")

Tensors = dict[str, Tensor]


def upcycled(
    raw: Mapping[str, Any], tensors: Mapping[str, Tensor], *, experts: int = EXPERTS, seed: int = 0
) -> tuple[dict[str, Any], Tensors]:
    """Configuration and tensors of the mixture, in float32."""
    generator = torch.Generator().manual_seed(seed)
    text = raw["text_config"]
    new = {
        **raw,
        "text_config": {
            **text,
            "num_experts": experts,
            "top_k_experts": min(CHOSEN, experts),
            "moe_intermediate_size": text["intermediate_size"],
        },
    }
    made = {name: tensor.float().clone() for name, tensor in tensors.items()}

    def noisy(matrix: Tensor) -> Tensor:
        noise = torch.randn(experts, *matrix.shape, generator=generator)
        return matrix + NOISE * matrix.std() * noise

    for index in range(text["num_hidden_layers"]):

        def of(name: str, index: int = index) -> str:
            return layer_name(index, name)

        gate_up = torch.cat([made[of("mlp.gate_proj.weight")], made[of("mlp.up_proj.weight")]])
        made[of("experts.gate_up_proj")] = noisy(gate_up)
        made[of("experts.down_proj")] = noisy(made[of("mlp.down_proj.weight")])
        made[of("router.proj.weight")] = ROUTER_STD * torch.randn(experts, text["hidden_size"], generator=generator)
        made[of("router.scale")] = torch.ones(text["hidden_size"])
        made[of("router.per_expert_scale")] = torch.ones(experts)
        made[of("pre_feedforward_layernorm_2.weight")] = made[of("pre_feedforward_layernorm.weight")].clone()
        half = made[of("post_feedforward_layernorm_1.weight")] / 2
        made[of("post_feedforward_layernorm_1.weight")] = half
        made[of("post_feedforward_layernorm_2.weight")] = half.clone()
    return new, made


def upcycle(target: Path, *, source: Path | None = None, seed: int = 0) -> int:
    """Writes the mixture as it is before any training; returns the bytes of its weights. Raises FileExistsError."""
    source = source or resolve_model(EMBEDDED_MODEL)
    config, tensors = _read(source, seed)
    target.mkdir(parents=True)
    return _write(target, config, tensors, source)


def train_upcycled(
    settings: Settings, arch: Architecture, *, seconds: float, source: Path | None = None, seed: int = 0
) -> int:
    """Trains the mixture on all prepared rows and writes it to `settings.out`; returns the bytes of its weights.

    `arch` is the source's shape. The log beside the weights has the losses, and for one batch drawn apart, before and
    after, the share of each layer's choices that went to each expert. Weights are written in bfloat16, as released
    checkpoints are. Raises FileExistsError.
    """
    source = source or resolve_model(EMBEDDED_MODEL)
    config, tensors = _read(source, seed)
    settings.out.mkdir(parents=True)
    log = Log(settings.out / "log.jsonl")
    device = torch.device(settings.device)
    torch.manual_seed(settings.seed)
    torch.set_float32_matmul_precision("high")
    encoder = Encoder.from_directory(settings.tokenizer)
    phase = Phase("upcycled", seconds=seconds, start="continue", everything=True, rate=3e-4, quantised_tail=0.0)
    sampler = _sampler(settings, phase, log)
    model = Nano(replace(arch, experts=EXPERTS, chosen=CHOSEN, expert=arch.feed_forward))
    load_named_tensors(model, tensors)
    runner = Runner(model.to(device), device, compiled=settings.compiled)
    probe = _Probe.draw(Stream(sampler, encoder, settings, settings.seed + 7919), device)
    before = probe.routing(runner)
    log(event="routing", when="before", **before.summary())
    run_phase(settings, phase, runner, sampler, encoder, 0, log)
    after = probe.routing(runner)
    log(event="routing", when="after", **after.summary(), moved=after.moved_from(before))
    kept = {name: tensor.to(torch.bfloat16) for name, tensor in named_tensors(model).items()}
    return _write(settings.out, config, kept, source)


def _read(source: Path, seed: int) -> tuple[dict[str, Any], Tensors]:
    raw = json.loads((source / "config.json").read_text(encoding="utf-8"))
    with closing(open_checkpoint(source)) as checkpoint:
        return upcycled(raw, dict(read_tensors(checkpoint)), seed=seed)


def _write(target: Path, config: Mapping[str, Any], tensors: Tensors, source: Path) -> int:
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _sampler(settings: Settings, phase: Phase, log: Log) -> Sampler:
    reader = Reader(load_texts(settings.prepared)[: settings.limit or None])
    rows = load_rows(settings.prepared, everything=phase.everything)
    rows = rows[:: max(1, len(rows) // settings.limit)] if settings.limit else rows
    log(event="data", rows=len(rows), **reader.counts)
    return Sampler(rows, reader, MIXTURES[phase.mixture])


@dataclass(frozen=True, slots=True)
class _Routing:
    loss: float
    """Of the slots, in nats."""
    right: float
    """Share of the slots."""
    layers: Sequence[Routed]
    real: Tensor
    """[T] bool: rows that are not padding."""

    def summary(self) -> dict[str, Any]:
        """`sure` is the mean share of a row's first expert among its two."""
        top = [one.probabilities[self.real].topk(CHOSEN, dim=-1).values for one in self.layers]
        even = [shares(one, self.real).tolist() for one in self.layers]
        return {
            "loss": round(self.loss, 4),
            "right": round(self.right, 4),
            "shares": [[round(share, 3) for share in layer] for layer in even],
            "effective_experts": [round(math.exp(-sum(s * math.log(s) for s in layer if s)), 2) for layer in even],
            "sure": [round(float((two[:, 0] / two.sum(1)).mean()), 3) for two in top],
        }

    def moved_from(self, other: _Routing) -> list[float]:
        """For each layer the share of rows that now go to another set of experts."""
        pairs = zip(self.layers, other.layers, strict=True)
        sets = [[one.chosen[self.real].sort(-1).values for one in pair] for pair in pairs]
        return [round(float((mine != theirs).any(-1).float().mean()), 3) for mine, theirs in sets]


@dataclass(frozen=True, slots=True)
class _Probe:
    """One batch that is drawn for measuring alone; training may draw the same rows."""

    batch: DeviceBatch

    @classmethod
    def draw(cls, stream: Stream, device: torch.device) -> _Probe:
        threads = torch.get_num_threads()
        batch = next(iter(stream))
        torch.set_num_threads(threads)  # the stream takes one, as its workers should
        return cls(to_device(batch, device))

    def routing(self, runner: Runner) -> _Routing:
        routed: list[Routed] = []
        runner.model.eval()
        with torch.no_grad():
            hidden = runner.hidden(self.batch, runner.mask(self.batch), None, routed)
            logits = runner.slot_logits(self.batch, hidden)
            found = logits.gather(1, self.batch.candidates.clamp_min(0)).masked_fill(self.batch.candidates < 0, -1e9)
            right = (found.argmax(1) == self.batch.targets.argmax(1)).float().mean()
        return _Routing(float(slot_loss(self.batch, logits)), float(right), routed, self.batch.doc >= 0)
