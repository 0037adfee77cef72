"""One process that trains phase after phase, keeps a log, and writes the quantised checkpoint and its predictions.

A phase is timed, not counted: the learning rate follows the clock, so that a run ends well within a lease. Nothing is
asked of the network; the process outlives the shell that started it and can be told of a new length by a file.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import pickle
import random
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from openjev_server.engine.quantised import FILE_NAME, write_quantised
from torch import Tensor

from .architecture import Architecture
from .backbone import Nano, named_tensors
from .device import DeviceBatch, Runner, candidate_log_probs, to_device
from .packing import Batch, Compiled, Encoder, pack
from .prepare import load_measures, load_rows, load_texts
from .quantise import quantised
from .reading import Reader
from .sampler import PLAIN, SKILLS, Sampler
from .warm_start import FRESH, load_warm_start

__all__ = ["Phase", "Settings", "train"]


@dataclass(frozen=True, slots=True)
class Phase:
    """`start` is `warm` (the warm start file) or `continue` (the weights that the phase before left)."""

    name: str
    seconds: float
    start: str = "warm"
    everything: bool = False
    mixture: str = "skills"
    rate: float = 5e-4
    fresh_factor: float = 3.0
    quantised_tail: float = 0.1
    """The last share of the phase, in which the weights are rounded as the checkpoint rounds them."""
    conditioned: float = 0.3
    """Share of batches that learn the second step."""
    measure: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    prepared: Path
    tokenizer: Path
    warm: Path | None
    out: Path
    device: str = "cuda"
    length: int = 65536
    workers: int = 14
    decay: float = 0.1
    seed: int = 0
    compiled: bool = True
    limit: int = 0
    """At most so many rows and texts; 0 for all. For tests."""
    max_steps: int = 0


class _Log:
    def __init__(self, path: Path) -> None:
        self._file, self._begin = path.open("a"), time.time()

    def __call__(self, **values: Any) -> None:
        line = json.dumps({"t": round(time.time() - self._begin, 1), **values})
        print(line, flush=True)
        self._file.write(line + "\n")
        self._file.flush()


class _Stream(torch.utils.data.IterableDataset[Batch]):
    def __init__(self, sampler: Sampler, encoder: Encoder, settings: Settings, seed: int) -> None:
        self._sampler, self._encoder, self._settings, self._seed = sampler, encoder, settings, seed

    def __iter__(self) -> Iterator[Batch]:
        info = torch.utils.data.get_worker_info()
        torch.set_num_threads(1)
        number = 0 if info is None else info.id
        rng, noise = random.Random(self._seed * 1000 + number), np.random.default_rng([self._seed, number])
        left: list[Compiled] = []

        def source() -> Iterator[Compiled]:
            yield from left
            while True:
                one = self._encoder.compile(self._sampler.draw(rng))
                if one.items and one.tokens < self._settings.length // 8:
                    yield one

        while True:
            drawn = source()
            batch, left = pack(drawn, self._settings.length, noise, self._encoder, shuffle_labels=0.3, stray_noise=0.15)
            yield batch


EMBEDDING_FACTOR = 0.2
"""Embeddings are stored divided by sqrt(hidden): their values are small beside a step at the full rate."""


def _groups(model: Nano, phase: Phase, decay: float) -> list[dict[str, Any]]:
    """Matrices decay, norms and embeddings do not; parameters that had no source learn faster, embeddings slower."""
    out: dict[tuple[float, float], list[Tensor]] = defaultdict(list)
    for name, p in model.named_parameters():
        embedding = name.startswith("embed")
        fresh = phase.start == "warm" and any(part in name for part in FRESH)
        factor = EMBEDDING_FACTOR if embedding else phase.fresh_factor if fresh else 1.0
        out[decay if p.ndim == 2 and not embedding else 0.0, factor].append(p)
    return [{"params": ps, "weight_decay": weight, "factor": factor} for (weight, factor), ps in out.items()]


def rate_at(done: float, step: int, warm_up: int = 60) -> float:
    """Factor of the learning rate: linear warm-up over steps, then a cosine over the phase's time down to 2 %."""
    return min(1.0, (step + 1) / warm_up) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def losses(
    runner: Runner, batch: DeviceBatch, conditioned: bool, text_weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Slot cross-entropy among the candidates, + 0.2 over the whole vocabulary, + language loss on states."""
    mask = runner.mask(batch)
    soft = None
    if conditioned:
        with torch.no_grad():
            soft = runner.model.soft_embedding(runner.slot_logits(batch, runner.hidden(batch, mask)))
            soft = soft * (torch.rand(len(soft), 1, device=soft.device) < 0.75)
    hidden = runner.hidden(batch, mask, soft)
    logits = runner.slot_logits(batch, hidden)
    picked = candidate_log_probs(batch, logits).masked_fill(batch.candidates < 0, 0.0)
    slot = -(batch.targets * picked).sum(1).mean()
    whole = logits.gather(1, batch.candidates.clamp_min(0)) - logits.logsumexp(-1, keepdim=True)
    full = -(batch.targets * whole).sum(1).mean()
    text = F.cross_entropy(runner.model.logits(hidden[batch.text]), batch.ids[batch.text + 1])
    return slot + 0.2 * full + text_weight * text, {"slot": slot, "full": full, "text": text}


def _seconds(settings: Settings, phase: Phase) -> float:
    """The phase's length, or what `lengths.json` in the output folder says now."""
    file = settings.out / "lengths.json"
    if file.is_file():
        try:
            return float(json.loads(file.read_text()).get(phase.name, phase.seconds))
        except ValueError:
            return phase.seconds
    return phase.seconds


def train(settings: Settings, phases: list[Phase], arch: Architecture) -> None:
    """Runs the phases; each leaves OUT/NAME/ with the checkpoint and predictions."""
    settings.out.mkdir(parents=True, exist_ok=True)
    log = _Log(settings.out / "log.jsonl")
    device = torch.device(settings.device)
    torch.manual_seed(settings.seed)
    torch.set_float32_matmul_precision("high")
    encoder = Encoder.from_directory(settings.tokenizer)
    measuring = Encoder.from_directory(settings.tokenizer, state_limit=None)
    reader = Reader(load_texts(settings.prepared)[: settings.limit or None])
    samplers: dict[tuple[bool, str], Sampler] = {}
    for phase in phases:
        key = (phase.everything, phase.mixture)
        if key not in samplers:
            rows = load_rows(settings.prepared, everything=phase.everything)
            rows = rows[:: max(1, len(rows) // settings.limit)] if settings.limit else rows
            samplers[key] = Sampler(rows, reader, {"skills": SKILLS, "plain": PLAIN}[phase.mixture])
            log(
                event="data",
                rows=len(rows),
                everything=phase.everything,
                closed=samplers[key].closed_tasks,
                **reader.counts,
            )
    # Measuring rows are tokenised beside the training, before CUDA is touched, so that no device waits for it.
    planning = multiprocessing.get_context("fork").Process(target=_plan, args=(settings, measuring), daemon=True)
    planning.start()
    model = Nano(arch).to(device)
    runner = Runner(model, device, compiled=settings.compiled)
    log(event="model", parameters=sum(p.numel() for p in model.parameters()))
    for number, phase in enumerate(phases):
        if phase.start == "warm" and settings.warm is not None:
            load_warm_start(model, settings.warm)
        _run_phase(settings, phase, runner, samplers[phase.everything, phase.mixture], encoder, number, log)
        try:
            _finish(settings, phase, runner, measuring, log, planning)
        except Exception:  # a failed measurement must not cost the phases that follow on a lent machine
            log(event="failed", phase=phase.name, error=traceback.format_exc())


def _run_phase(
    settings: Settings, phase: Phase, runner: Runner, sampler: Sampler, encoder: Encoder, number: int, log: _Log
) -> None:
    model, device = runner.model, runner.device
    stream = _Stream(sampler, encoder, settings, settings.seed + 1 + number)
    loader = iter(
        torch.utils.data.DataLoader(
            stream, batch_size=None, num_workers=settings.workers, prefetch_factor=3 if settings.workers else None
        )
    )
    optimizer = torch.optim.AdamW(
        _groups(model, phase, settings.decay), lr=phase.rate, betas=(0.9, 0.95), fused=device.type == "cuda"
    )
    sums: dict[str, Tensor] = {}
    rng = random.Random(settings.seed)
    begin = last = time.time()
    step = tokens = since = 0
    waited, length = 0.0, phase.seconds
    model.train()
    while True:
        if step % 20 == 0:
            length = _seconds(settings, phase)
        done = (time.time() - begin) / length
        if done >= 1 or (settings.max_steps and step >= settings.max_steps):
            break
        for group in optimizer.param_groups:
            group["lr"] = phase.rate * group["factor"] * rate_at(done, step)
        asked = time.time()
        packed = next(loader)
        waited += time.time() - asked
        batch = to_device(packed, device)
        # Both kinds of pass compile in the first steps, outside the timed part.
        conditioned = rng.random() < phase.conditioned if step >= 3 else step == 1
        text_weight = 0.4 * (1 - done) + 0.1
        if done > 1 - phase.quantised_tail:
            with quantised(model):
                loss, parts = losses(runner, batch, conditioned, text_weight)
                loss.backward()
        else:
            loss, parts = losses(runner, batch, conditioned, text_weight)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for name, value in parts.items():
            sums[name] = sums.get(name, torch.zeros((), device=device)) + value.detach()
        step, since, tokens = step + 1, since + 1, tokens + packed.tokens
        if step in (1, 2, 3):
            if device.type == "cuda":
                torch.cuda.synchronize()
            log(event="warm", phase=phase.name, step=step, seconds=round(time.time() - begin, 1))
            if step == 3:
                begin, tokens, waited = time.time(), 0, 0.0
        if time.time() - last > 15 or step == 20:
            means = {name: round(float(value) / since, 4) for name, value in sums.items()}
            took = time.time() - begin
            log(
                event="step",
                phase=phase.name,
                step=step,
                done=round(done, 3),
                millions=round(tokens / 1e6, 2),
                rate=round(tokens / max(took, 1e-6)),
                waited=round(waited / max(took, 1e-6), 3),
                **means,
            )
            sums, since, last = {}, 0, time.time()
    log(
        event="end", phase=phase.name, step=step, millions=round(tokens / 1e6, 2), seconds=round(time.time() - begin, 1)
    )
    del loader


def _plan(settings: Settings, encoder: Encoder) -> None:
    from .predict import plan_jobs

    torch.set_num_threads(1)
    measures = load_measures(settings.prepared)
    if settings.limit:
        measures = {k: v[::50] for k, v in measures.items()}
    (settings.out / "jobs.part").write_bytes(pickle.dumps(plan_jobs(encoder, measures)))
    (settings.out / "jobs.part").rename(settings.out / "jobs.pickle")


def _finish(
    settings: Settings, phase: Phase, runner: Runner, encoder: Encoder, log: _Log, planning: BaseProcess
) -> None:
    """Writes the checkpoint, then predicts with the weights as the checkpoint gives them back."""
    folder = settings.out / phase.name
    folder.mkdir(parents=True, exist_ok=True)
    write_quantised(folder / FILE_NAME, named_tensors(runner.model), {"phase": phase.name})
    torch.save(runner.model.state_dict(), folder / "exact.pt")
    log(event="saved", phase=phase.name, bytes=(folder / FILE_NAME).stat().st_size)
    if not phase.measure:
        return
    from .predict import answer, write_predictions

    planning.join()
    jobs = pickle.loads((settings.out / "jobs.pickle").read_bytes())
    runner.model.eval()
    with quantised(runner.model):
        records = answer(runner, encoder, jobs, length=settings.length)
    write_predictions(folder / "predictions.jsonl.xz", records)
    right = [
        r.steps[-1].index(max(r.steps[-1])) == r.gold
        for r in records
        if r.measure == "held-out" and r.variant == "plain"
    ]
    log(event="measured", phase=phase.name, records=len(records), held_out=round(sum(right) / max(1, len(right)), 4))
