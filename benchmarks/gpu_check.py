"""Is the fast path right? `python -m benchmarks.gpu_check --device cuda --dtype bfloat16 --rows test.jsonl.xz`.

On the embedded checkpoint, on the same one upcycled to 8 experts, or on any directory (`--models`):

  reference  slot logits against the float32 engine on the CPU: their relative error, and whether the likeliest answer
             is the same wherever the reference's first two answers are more than 0.1 nats apart
  packing    the same requests alone and among 30 others in random order: the largest change of a probability
  soak       random requests of 1 to 8,000 tokens, many at a time: finite, complete, none lost

Without `--rows` the questions recorded in fixtures/jev are asked.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.upcycle import upcycle
from numpy.typing import NDArray
from openjev_server.bundle import load_bundle, resolve_model
from openjev_server.canvas.compile import Compiler
from openjev_server.engine.loading import load_engine
from openjev_server.engine.protocol import CanvasBlock, Engine, EngineError, EngineRequest, EngineResult, Float32
from openjev_server.wire.parse import parse_request

from benchmarks.results import DIRECTORY, machine, write_json
from benchmarks.workload import request, tokens

__all__ = ["Limits", "against_reference", "main", "packing", "soak"]

ROOT = Path(__file__).resolve().parents[1]
GROUP = 31
MARGIN = 0.1
"""Nats between the reference's first two candidates of a slot, above which they may not change places."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as right."""

    relative_error: float = 2e-2
    flips: int = 0
    above_margin: float = 0.5
    """Share of slots with so clear a reference: with fewer, no flip says nothing."""
    probability_change: float = 0.01


def against_reference(fast: Engine, reference: Engine, requests: Sequence[EngineRequest]) -> dict[str, Any]:
    """Every slot of every step. The error of a slot is |fast - reference| / |reference| over its candidates' logits."""
    errors: list[float] = []
    flips = clear = 0
    changes: list[float] = []
    pairs = zip(requests, _answers(fast, requests), _answers(reference, requests), strict=True)
    for one, ours, theirs in pairs:
        for block, mine, true in zip(one.blocks, ours.blocks, theirs.blocks, strict=True):
            for ours_at, true_at in zip(_slots(block, mine), _slots(block, true), strict=True):
                difference = float(np.linalg.norm(ours_at.logits - true_at.logits))
                errors.append(difference / max(float(np.linalg.norm(true_at.logits)), 1e-9))
                changes.append(float(np.abs(ours_at.probabilities - true_at.probabilities).max()))
                first, second = np.sort(true_at.logits)[::-1][:2]
                if first - second > MARGIN:
                    clear += 1
                    flips += int(ours_at.logits.argmax() != true_at.logits.argmax())
    return {
        "requests": len(requests),
        "slots": len(errors),
        "relative_error_median": float(f"{np.median(errors):.3g}"),
        "relative_error_p99": float(f"{np.quantile(errors, 0.99):.3g}"),
        "relative_error_max": float(f"{max(errors):.3g}"),
        "probability_change_p99": float(f"{np.quantile(changes, 0.99):.3g}"),
        "probability_change_max": float(f"{max(changes):.3g}"),
        "share_above_margin": round(clear / len(errors), 4),
        "flips_above_margin": flips,
    }


def packing(engine: Engine, requests: Sequence[EngineRequest], rng: np.random.Generator) -> dict[str, Any]:
    """Alone and among others: half of the requests are seen alone first, the others packed first.

    Which comes second may find its state in a cache: a hit must agree with a miss, too.
    """
    half = len(requests) // 2
    alone = [_one(engine, one) for one in requests[:half]]
    order = rng.permutation(len(requests))
    packed: dict[int, EngineResult] = {}
    for first in range(0, len(order), GROUP):
        group = [int(number) for number in order[first : first + GROUP]]
        packed |= zip(group, _answers(engine, [requests[number] for number in group]), strict=True)
    alone += [_one(engine, one) for one in requests[half:]]
    changes = [
        float(np.abs(single.probabilities - among.probabilities).max())
        for number, one in enumerate(requests)
        for block, mine, other in zip(one.blocks, alone[number].blocks, packed[number].blocks, strict=True)
        for single, among in zip(_slots(block, mine), _slots(block, other), strict=True)
    ]
    return {
        "requests": len(requests),
        "packed_with": GROUP - 1,
        "probability_change_median": float(f"{np.median(changes):.3g}"),
        "probability_change_p99": float(f"{np.quantile(changes, 0.99):.3g}"),
        "probability_change_max": float(f"{max(changes):.3g}"),
    }


def soak(engine: Engine, rng: np.random.Generator, *, count: int, longest: int) -> dict[str, Any]:
    """Random requests; lengths even in their logarithm, 1 to 40 at a time, some about a state that came before."""
    vocab = engine.info.vocab_size
    started = time.perf_counter()
    answered = total = 0
    failures: list[str] = []
    earlier = tokens(rng, 1, vocab)
    while answered + len(failures) < count:
        batch = []
        for _ in range(min(int(rng.integers(1, 41)), count - answered - len(failures))):
            if rng.random() > 0.2:
                earlier = tokens(rng, int(np.exp(rng.uniform(0, np.log(longest)))), vocab)
            shape = {"questions": int(rng.integers(1, 6)), "suffix": int(rng.integers(0, 60))}
            width, steps, options = int(rng.integers(1, 33)), int(rng.integers(1, 4)), int(rng.integers(2, 9))
            batch.append(request(rng, vocab, state=earlier, width=width, steps=steps, options=options, **shape))
        total += sum(one.tokens for one in batch)
        for outcome in engine.run(batch):
            if isinstance(outcome, EngineError):
                failures.append(str(outcome))
            elif not all(np.isfinite(block.log_probs).all() for block in outcome.blocks):
                failures.append("not finite")
            else:
                answered += 1
    return {
        "requests": count,
        "tokens": total,
        "answered": answered,
        "failures": failures[:20],
        "seconds": round(time.perf_counter() - started, 1),
    }


@dataclass(frozen=True, slots=True)
class _Slot:
    logits: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    """Over the candidates alone."""


def _slots(block: CanvasBlock, answer: Any) -> Iterator[_Slot]:
    """Every slot of every step and replica."""
    steps, replicas, _ = answer.log_probs.shape
    for step in range(steps):
        for replica in range(replicas):
            row: Float32 = answer.log_probs[step, replica]
            for slot in range(len(block.slots)):
                kept = row[block.offsets[slot] : block.offsets[slot + 1]].astype(np.float64)
                shares = np.exp(kept - kept.max())
                yield _Slot(kept + float(answer.logsumexp[step, replica, slot]), shares / shares.sum())


def _answers(engine: Engine, requests: Sequence[EngineRequest]) -> list[EngineResult]:
    """Raises EngineError when one fails."""
    answers = []
    for outcome in engine.run(requests):
        if isinstance(outcome, EngineError):
            raise outcome
        answers.append(outcome)
    return answers


def _one(engine: Engine, one: EngineRequest) -> EngineResult:
    return _answers(engine, [one])[0]


def _questions(rows: Path | None, per_task: int) -> list[tuple[Any, Mapping[str, Any]]]:
    """(state, question in wire form)."""
    if rows is not None:
        from benchmarks.accuracy import first_rows

        return [(row.state, row.question) for row in first_rows(rows, per_task)]
    found = []
    for path in sorted((ROOT / "fixtures/jev").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            asked = json.loads(line)["request"]
            if asked is not None:
                found.append((asked["state"], asked["question"]))
    return found


def _requests(directory: Path, asked: Sequence[tuple[Any, Mapping[str, Any]]], steps: int) -> list[EngineRequest]:
    bundle = load_bundle(directory)
    compiler = Compiler(bundle.tokenizer, bundle.template)
    requests = []
    for state, question in asked:
        body = {"state": state, "model": bundle.id, "questions": {"q": question}}
        parsed = parse_request(body, unknown_fields="reject")
        requests.append(compiler.compile(parsed.state, parsed.questions, steps=steps).request)
    return requests


def check(
    directory: Path, chosen: argparse.Namespace, limits: Limits, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """All three parts on one checkpoint directory, and what is wrong; `keep` gets what there is after each part."""
    rng = np.random.default_rng(0)
    asked = _questions(chosen.rows, chosen.per_task)
    asked = [asked[at] for at in rng.permutation(len(asked))]
    compared = _requests(directory, asked[: chosen.compare], steps=2)
    options = {"weights": chosen.weights} if chosen.weights else {}
    fast = load_engine(directory, device=chosen.device, dtype=chosen.dtype, **options)
    fast.warm_up()
    reference = load_engine(directory, device="cpu", dtype="float32")
    found: dict[str, Any] = {"engine": f"{fast.info.device} {fast.info.dtype} {chosen.weights or ''}".strip()}
    found["reference"] = against_reference(fast, reference, compared)
    many = list(islice(cycle(_requests(directory, asked, steps=2)), chosen.packed))
    keep(found)
    found["packing"] = packing(fast, many, rng)
    keep(found)
    found["soak"] = soak(fast, rng, count=chosen.soak, longest=min(chosen.longest, fast.info.max_positions - 128))
    fast.close()
    checks = {
        "relative_error_max": found["reference"]["relative_error_max"] <= limits.relative_error,
        "flips_above_margin": found["reference"]["flips_above_margin"] <= limits.flips,
        "share_above_margin": found["reference"]["share_above_margin"] >= limits.above_margin,
        "probability_change_max": found["packing"]["probability_change_max"] <= limits.probability_change,
        "soak": found["soak"]["answered"] == chosen.soak,
    }
    found["missed"] = [name for name, held in checks.items() if not held]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="nano,upcycled", help="nano, upcycled or directories (default %(default)s)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--weights", help="a quantised form: float8 or int4")
    parser.add_argument("--rows", type=Path, help="typed decisions, one JSON object a line, xz")
    parser.add_argument("--per-task", type=int, default=25, help="rows of each task (default %(default)s)")
    parser.add_argument("--compare", type=int, default=500, help="requests for the reference (default %(default)s)")
    parser.add_argument("--packed", type=int, default=1000, help="requests for packing (default %(default)s)")
    parser.add_argument("--soak", type=int, default=1000, help="random requests (default %(default)s)")
    parser.add_argument("--longest", type=int, default=8000, help="tokens of the longest (default %(default)s)")
    parser.add_argument("--json", type=Path, default=DIRECTORY / "gpu_check.json", help="default %(default)s")
    chosen = parser.parse_args(arguments)
    result: dict[str, Any] = {"machine": machine()}
    with tempfile.TemporaryDirectory(prefix="openjev-upcycled-") as scratch:
        for name in chosen.models.split(","):
            directory = Path(scratch) / "upcycled"
            if name == "upcycled":
                upcycle(directory)
            else:
                directory = resolve_model(name)

            def keep(found: dict[str, Any], name: str = name) -> None:
                write_json(chosen.json, {**result, name: found})

            result[name] = check(directory, chosen, Limits(), keep)
            write_json(chosen.json, result)
            print(f"{name}: {json.dumps(result[name], indent=1)}", flush=True)
    return 1 if any(result[name]["missed"] for name in chosen.models.split(",")) else 0


if __name__ == "__main__":
    sys.exit(main())
