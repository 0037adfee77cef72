"""One process that trains phase after phase, keeps a log, and writes the quantised checkpoint and its predictions.

The learning rate follows the clock (a run ends well within a lease) or the tokens, as the plan has it. Nothing is asked
of the network; the process outlives the shell that started it and can be told of a new length by a file. Started again
with the same output folder it skips phases that have ended and goes on in the one that has not.
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
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as PyTorch calls it
from openjev_server.engine.quantised import FILE_NAME
from torch import Tensor

from .architecture import Architecture
from .backbone import Nano, named_tensors
from .checkpoint import write_checkpoint
from .device import DeviceBatch, Runner, candidate_log_probs, to_device
from .journal import Log, Losses
from .mixture import Routed, balance
from .packing import Batch, Compiled, Encoder, pack
from .plan import Phase, Settings
from .prepare import load_measures, load_rows, load_texts
from .progress import FINISHED, load_progress, save_progress
from .quantise import quantised
from .reading import Reader
from .sampler import MIXTURES, Sampler
from .warm_start import FRESH, load_warm_start

__all__ = ["Stream", "losses", "rate_at", "run_phase", "slot_loss", "train"]


class Stream(torch.utils.data.IterableDataset[Batch]):
    """Packed batches without end, drawn anew by each worker."""

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


PREDICTIONS = "predictions.jsonl.xz"

BALANCE = 0.01
"""Weight of the mixture's balancing loss, as in Switch Transformers."""
EMBEDDING_FACTOR = 0.2
"""Embeddings are stored divided by sqrt(hidden): their values are small beside a step at the full rate."""


def _groups(model: Nano, phase: Phase, decay: float) -> list[dict[str, Any]]:
    """Matrices decay, norms and embeddings do not; parameters that had no source learn faster, embeddings slower.

    A router never has a source.
    """
    out: dict[tuple[float, float], list[Tensor]] = defaultdict(list)
    for name, p in model.named_parameters():
        embedding = name.startswith("embed")
        fresh = name.endswith("mixture.router") or (phase.start == "warm" and any(part in name for part in FRESH))
        factor = EMBEDDING_FACTOR if embedding else phase.fresh_factor if fresh else 1.0
        out[decay if p.ndim > 1 and not embedding else 0.0, factor].append(p)
    return [{"params": ps, "weight_decay": weight, "factor": factor} for (weight, factor), ps in out.items()]


def rate_at(done: float, step: int, warm_up: int = 60) -> float:
    """Factor of the learning rate: linear warm-up over steps, then a cosine over the phase's time down to 2 %."""
    return min(1.0, (step + 1) / warm_up) * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def losses(
    runner: Runner, batch: DeviceBatch, conditioned: bool, text_weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """Slot cross-entropy among the candidates, + 0.2 over the whole vocabulary, + language loss on states.

    Of a mixture also the mean balancing loss of its layers' routers, times `BALANCE`.
    """
    mask = runner.mask(batch)
    soft = None
    if conditioned:
        with torch.no_grad():
            soft = runner.model.soft_embedding(runner.slot_logits(batch, runner.hidden(batch, mask)))
            soft = soft * (torch.rand(len(soft), 1, device=soft.device) < 0.75)
    routed: list[Routed] = []
    hidden = runner.hidden(batch, mask, soft, routed)
    logits = runner.slot_logits(batch, hidden)
    slot = slot_loss(batch, logits)
    whole = logits.gather(1, batch.candidates.clamp_min(0)) - logits.logsumexp(-1, keepdim=True)
    full = -(batch.targets * whole).sum(1).mean()
    text = F.cross_entropy(runner.model.logits(hidden[batch.text]), batch.ids[batch.text + 1])
    loss, parts = slot + 0.2 * full + text_weight * text, {"slot": slot, "full": full, "text": text}
    if routed:
        parts["balance"] = torch.stack([balance(one, batch.doc >= 0) for one in routed]).mean()
        loss = loss + BALANCE * parts["balance"]
    return loss, parts


def slot_loss(batch: DeviceBatch, logits: Tensor) -> Tensor:
    """Cross-entropy among the candidates, a mean over the slots; `logits` are [S, vocab]."""
    picked = candidate_log_probs(batch, logits).masked_fill(batch.candidates < 0, 0.0)
    return -(batch.targets * picked).sum(1).mean()


def _backward(runner: Runner, batch: DeviceBatch, conditioned: bool, done: float) -> dict[str, Tensor]:
    """Leaves gradients on the parameters; the language loss counts less and less as the phase goes on."""
    loss, parts = losses(runner, batch, conditioned, 0.4 * (1 - done) + 0.1)
    torch.autograd.backward(loss)
    return parts


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
    """Runs the phases that have not ended yet; each leaves OUT/NAME/ with the checkpoint and predictions."""
    settings.out.mkdir(parents=True, exist_ok=True)
    log = Log(settings.out / "log.jsonl")
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
            samplers[key] = Sampler(rows, reader, MIXTURES[phase.mixture])
            log(
                event="data",
                rows=len(rows),
                everything=phase.everything,
                closed=samplers[key].closed_tasks,
                **reader.counts,
            )
    # Measuring rows are tokenised beside the training, before CUDA is touched, so that no device waits for it.
    planning = multiprocessing.get_context("fork").Process(target=_plan, args=(settings, measuring), daemon=True)
    if any(phase.measure for phase in phases):
        planning.start()
    model = Nano(arch).to(device)
    runner = Runner(model, device, compiled=settings.compiled)
    # A later warm phase must not inherit, in the parameters that have no source, what an earlier one has learned.
    fresh = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    log(event="model", parameters=sum(p.numel() for p in model.parameters()))
    for number, phase in enumerate(phases):
        folder = settings.out / phase.name
        if (folder / FINISHED).is_file():
            model.load_state_dict(torch.load(folder / FINISHED, map_location=device, weights_only=True))
            log(event="skipped", phase=phase.name)
        else:
            if phase.start == "warm":
                model.load_state_dict(fresh)
                if settings.warm is not None:
                    load_warm_start(model, settings.warm)
            run_phase(settings, phase, runner, samplers[phase.everything, phase.mixture], encoder, number, log)
            _write(settings, folder, phase, runner.model, log)
        if phase.measure and not (folder / PREDICTIONS).is_file():
            try:
                planning.join()
                _measure(settings, folder, phase, runner, measuring, log)
            except Exception:  # a failed measurement must not cost the phases that follow on a lent machine
                log(event="failed", phase=phase.name, error=traceback.format_exc())


def run_phase(
    settings: Settings, phase: Phase, runner: Runner, sampler: Sampler, encoder: Encoder, number: int, log: Log
) -> None:
    """Trains the runner's model in place; `number` tells a run's phases apart in what they draw."""
    model, device = runner.model, runner.device
    optimizer = torch.optim.AdamW(
        _groups(model, phase, settings.decay), lr=phase.rate, betas=(0.9, 0.95), fused=device.type == "cuda"
    )
    file = settings.out / phase.name / "progress.pt"
    at = load_progress(file, model, optimizer)
    first = at.step
    if first:
        log(event="resumed", phase=phase.name, step=first, millions=round(at.tokens / 1e6, 2))
    # A run that goes on draws other rows than the ones it has seen.
    stream = Stream(sampler, encoder, settings, settings.seed + 1 + number + 101 * first)
    loader = iter(
        torch.utils.data.DataLoader(
            stream, batch_size=None, num_workers=settings.workers, prefetch_factor=3 if settings.workers else None
        )
    )
    means = Losses()
    rng = random.Random(settings.seed + first)
    before, waited = at.seconds, 0.0
    begin = last = saved = time.time()
    length = phase.seconds
    model.train()
    while True:
        if at.step % 20 == 0:
            length = _seconds(settings, phase)
        done = at.tokens / (phase.millions * 1e6) if phase.millions else at.seconds / length
        if done >= 1 or (settings.max_steps and at.step >= settings.max_steps):
            break
        for group in optimizer.param_groups:
            group["lr"] = phase.rate * group["factor"] * rate_at(done, at.step)
        asked = time.time()
        packed = next(loader)
        waited += time.time() - asked
        # Both kinds of pass compile in the first steps, outside the timed part.
        compiling = at.step - first < 3
        conditioned = at.step - first == 1 if compiling else rng.random() < phase.conditioned
        with quantised(model) if done > 1 - phase.quantised_tail else nullcontext():
            means.add(_backward(runner, to_device(packed, device), conditioned, done))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        at.step, at.tokens = at.step + 1, at.tokens + packed.tokens
        if compiling:
            if device.type == "cuda":
                torch.cuda.synchronize()
            log(event="warm", phase=phase.name, step=at.step, seconds=round(time.time() - begin, 1))
            begin, waited = time.time(), 0.0
            if at.step == 3:
                at.tokens = 0
        at.seconds = before + time.time() - begin
        if time.time() - last > 15 or at.step == 20:
            log(
                event="step",
                phase=phase.name,
                step=at.step,
                done=round(done, 3),
                millions=round(at.tokens / 1e6, 2),
                rate=round(at.tokens / max(at.seconds, 1e-6)),
                waited=round(waited / max(at.seconds - before, 1e-6), 3),
                **means.read(),
            )
            last = time.time()
        if time.time() - saved >= settings.save_seconds:
            save_progress(file, at, model, optimizer)
            saved = time.time()
    log(event="end", phase=phase.name, step=at.step, millions=round(at.tokens / 1e6, 2), seconds=round(at.seconds, 1))
    del loader


def _plan(settings: Settings, encoder: Encoder) -> None:
    from .predict import plan_jobs

    torch.set_num_threads(1)
    measures = load_measures(settings.prepared)
    if settings.limit:
        measures = {k: v[::50] for k, v in measures.items()}
    (settings.out / "jobs.part").write_bytes(pickle.dumps(plan_jobs(encoder, measures)))
    (settings.out / "jobs.part").rename(settings.out / "jobs.pickle")


def _write(settings: Settings, folder: Path, phase: Phase, model: Nano, log: Log) -> None:
    """A checkpoint directory that loads, and the exact weights: once they are there the phase has ended."""
    write_checkpoint(folder, named_tensors(model), model.arch, settings.tokenizer, {"phase": phase.name})
    torch.save(model.state_dict(), folder / "exact.part")
    (folder / "exact.part").rename(folder / FINISHED)
    (folder / "progress.pt").unlink(missing_ok=True)
    log(event="saved", phase=phase.name, bytes=(folder / FILE_NAME).stat().st_size)


def _measure(settings: Settings, folder: Path, phase: Phase, runner: Runner, encoder: Encoder, log: Log) -> None:
    """Predicts with the weights as the checkpoint gives them back."""
    from .predict import answer, write_predictions

    jobs = pickle.loads((settings.out / "jobs.pickle").read_bytes())
    runner.model.eval()
    with quantised(runner.model):
        records = answer(runner, encoder, jobs, length=settings.length)
    write_predictions(folder / PREDICTIONS, records)
    plain = [r for r in records if r.measure == "held-out" and r.variant == "plain"]
    right = [r.steps[-1].index(max(r.steps[-1])) == r.gold for r in plain]
    log(event="measured", phase=phase.name, records=len(records), held_out=round(sum(right) / max(1, len(right)), 4))
