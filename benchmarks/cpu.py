"""The embedded checkpoint on a CPU: `python -m benchmarks.cpu --threads 2`.

Five questions about a state of 500 tokens, one and two denoising steps, in one process and taking turns:

  ours       this engine: one packed pass
  (i)        transformers' own class: five whole prompts, padded on the left, in a batch
  (ii)       transformers' own class: one prefill of the state, its cache expanded five times, then the questions
  repeated   this engine, when the state was asked about before
  int8       ours and repeated again with 8-bit products (`OPENJEV_WEIGHTS=int8`), where the processor has them

Every round has a new state. A timing during which other processes took more than a tenth of the cores is left out
(Linux only), and up to four times as many rounds are made to have enough of the others. Medians. The two ways of
transformers are checked to say what the engine says after the first step; `--rows` gives how often 8-bit products
change the top answer. The products' own rates tell how fast this machine could be: a pass is about 60 GFLOP of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from openjev_server.bundle import EMBEDDED_MODEL, load_bundle, resolve_model
from openjev_server.canvas.compile import Compiler
from openjev_server.engine.export import export
from openjev_server.engine.int8 import UNAVAILABLE, probe
from openjev_server.engine.loading import choose_device, choose_dtype, load_engine
from openjev_server.engine.matrix import Matrix, linear, to_int8
from openjev_server.engine.prepacked import can_prepack, prepack
from openjev_server.engine.protocol import Engine, EngineRequest, EngineResult
from openjev_server.wire.parse import parse_request

from benchmarks import latency
from benchmarks.cpu_agreement import agreement, spread_rows
from benchmarks.results import DIRECTORY, machine, spread, write_json

__all__ = ["Stock", "main"]

OTHERS_SHARE = 0.1
MOST_ROUNDS = 4


class Stock:
    """transformers' class on an exported checkpoint, asked for the candidates' log-probabilities at the slots."""

    def __init__(self, directory: Path, dtype: torch.dtype) -> None:
        from transformers import DiffusionGemmaForBlockDiffusion

        self._model = DiffusionGemmaForBlockDiffusion.from_pretrained(directory, dtype=dtype).eval()

    @torch.inference_mode()
    def padded(self, request: EngineRequest) -> list[list[float]]:
        """(i); after the first step, per block."""
        prompts = [np.concatenate([request.state, block.suffix]) for block in request.blocks]
        rows, mask = _left_padded(prompts)
        return self._decode(request, rows, mask, None, (mask.cumsum(1) - 1).clamp_min(0))

    @torch.inference_mode()
    def expanded(self, request: EngineRequest) -> list[list[float]]:
        """(ii); after the first step, per block."""
        state = torch.from_numpy(request.state.astype(np.int64))[None]
        cache = self._model.model.encoder(input_ids=state).past_key_values
        cache.batch_repeat_interleave(len(request.blocks))
        rows, mask = _left_padded([block.suffix for block in request.blocks])
        positions = len(request.state) + (mask.cumsum(1) - 1).clamp_min(0)
        whole = torch.cat([torch.ones(len(rows), len(request.state), dtype=mask.dtype), mask], dim=1)
        return self._decode(request, rows, whole, cache, positions)

    def _decode(
        self, request: EngineRequest, rows: torch.Tensor, mask: torch.Tensor, cache: Any, positions: torch.Tensor
    ) -> list[list[float]]:
        canvases = _canvases(request)
        common = {
            "decoder_input_ids": canvases,
            "decoder_attention_mask": torch.cat([mask, torch.ones_like(canvases)], dim=1),
            "decoder_position_ids": mask.sum(1, keepdim=True) + torch.arange(canvases.shape[1]),
        }
        done = self._model(input_ids=rows, attention_mask=mask, past_key_values=cache, position_ids=positions, **common)
        logits = done.logits
        first = _candidates(request, logits)
        for _ in range(request.steps - 1):
            again = self._model(past_key_values=done.past_key_values, self_conditioning_logits=logits, **common)
            logits = again.logits
            _candidates(request, logits)
        return first


def _left_padded(rows: Sequence[np.ndarray[Any, np.dtype[np.int32]]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    tokens, mask = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest, dtype=torch.long)
    for at, row in enumerate(rows):
        tokens[at, longest - len(row) :] = torch.from_numpy(row.astype(np.int64))
        mask[at, longest - len(row) :] = 1
    return tokens, mask


def _canvases(request: EngineRequest) -> torch.Tensor:
    widths = {block.canvases.shape[1] for block in request.blocks}
    if len(widths) != 1:
        raise ValueError("the questions' canvases differ in width")
    return torch.from_numpy(np.concatenate([block.canvases for block in request.blocks]).astype(np.int64))


def _candidates(request: EngineRequest, logits: torch.Tensor) -> list[list[float]]:
    """Log-probabilities of every block's first slot's candidates."""
    return [
        logits[at, int(block.slots[0])].log_softmax(-1)[block.candidates.astype(np.int64)].tolist()
        for at, block in enumerate(request.blocks)
    ]


def _request(compiler: Compiler, number: int, steps: int, state: int) -> EngineRequest:
    """`latency.request(number)` with its state cut to so many tokens."""
    body = latency.request(number)
    parsed = parse_request(body, unknown_fields="reject")
    made = compiler.compile(parsed.state, parsed.questions, steps=steps).request
    return replace(made, state=np.concatenate([made.state[: state - 1], made.state[-1:]]))


def _ours(engine: Engine, request: EngineRequest) -> list[list[float]]:
    outcome = engine.run([request])[0]
    if not isinstance(outcome, EngineResult):
        raise outcome
    return [block.log_probs[0, 0].tolist() for block in outcome.blocks]


def _timed(call: Callable[[EngineRequest], list[list[float]]], request: EngineRequest) -> tuple[float, bool, Any]:
    """Milliseconds, whether other processes left the cores alone, and what was said."""
    others, started = _others_s(), time.perf_counter()
    said = call(request)
    took = time.perf_counter() - started
    return 1000 * took, _others_s() - others <= OTHERS_SHARE * took * (os.cpu_count() or 1), said


def _others_s() -> float:
    """Processor seconds that everything but this process has used since the machine's start; 0 where nobody says."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, stolen = fields
    own = os.times()
    return (user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK") - own.user - own.system


def product_rates() -> dict[str, float]:
    """GFLOP/s of [638, 576] x [576, 1536], the fastest of 30: what rows of the timed pass are multiplied with."""
    x, weight = torch.randn(638, 576), torch.randn(1536, 576)
    matrices: dict[str, Matrix] = {"float32": prepack(weight) if can_prepack() else weight}
    if probe() is not None:
        matrices["int8"] = to_int8(weight)
    fastest = dict.fromkeys(matrices, float("inf"))
    for _ in range(30):
        for name, matrix in matrices.items():
            started = time.perf_counter()
            linear(x, matrix)
            fastest[name] = min(fastest[name], time.perf_counter() - started)
    return {name: round(2e-9 * x.shape[0] * weight.numel() / seconds, 1) for name, seconds in fastest.items()}


def measure(
    engine: Engine, eight: Engine | None, stock: Stock, requests: Iterable[EngineRequest], rounds: int
) -> dict[str, Any]:
    """Milliseconds of every way, and how far their answers lie apart. The first request is to warm up.

    Stops once every way has `rounds` undisturbed timings. Raises RuntimeError when one has none in the end.
    """
    ways: dict[str, Callable[[EngineRequest], list[list[float]]]] = {
        "ours": lambda request: _ours(engine, request),
        "repeated": lambda request: _ours(engine, request),
        "padded_batch": stock.padded,
        "expanded_cache": stock.expanded,
    }
    if eight is not None:
        ways |= dict.fromkeys(("int8", "int8_repeated"), lambda request: _ours(eight, request))
    times: dict[str, list[float]] = {name: [] for name in ways}
    apart = {name: 0.0 for name in ways if name in ("padded_batch", "expanded_cache", "int8")}
    for number, request in enumerate(requests):
        said = {}
        for name, way in ways.items():
            took, quiet, said[name] = _timed(way, request)
            if number and quiet:
                times[name].append(took)
        for name, largest in apart.items():
            pairs = zip(said["ours"], said[name], strict=True)
            apart[name] = max(largest, *(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs))
        if min(map(len, times.values())) >= rounds:
            break
    if not all(times.values()):
        raise RuntimeError("other processes disturbed every timing")
    median = {name: float(np.median(values)) for name, values in times.items()}
    eighth: dict[str, float] = {}
    if eight is not None:
        eighth["int8_times_faster"] = round(median["ours"] / median["int8"], 2)
        eighth["int8_largest_difference_nats"] = round(apart.pop("int8"), 3)
    return {
        "steps": request.steps,
        "ms": {name: spread(values, 1) for name, values in times.items()},
        "times_faster_than_padded_batch": round(median["padded_batch"] / median["ours"], 2),
        "times_faster_than_expanded_cache": round(median["expanded_cache"] / median["ours"], 2),
        **eighth,
        "largest_difference_nats": {name: float(f"{value:.2g}") for name, value in apart.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="auto", help="of both (default %(default)s: what the engine prefers)")
    parser.add_argument("--weights", default="auto", help="the engine's (default %(default)s)")
    parser.add_argument("--state", type=int, default=500, help="tokens of the state (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="measured, after one to warm up")
    parser.add_argument("--rows", type=Path, help="a task file (.jsonl.xz): also compare the top answers on its rows")
    parser.add_argument("--row-count", type=int, default=1000, help="of them (default %(default)s)")
    parser.add_argument("--json", type=Path, default=DIRECTORY / "cpu.json", help="default %(default)s")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(chosen.threads)
    directory = resolve_model(EMBEDDED_MODEL)
    bundle = load_bundle(directory)
    compiler = Compiler(bundle.tokenizer, bundle.template)
    dtype, why = choose_dtype(choose_device("cpu"), chosen.dtype)
    engine = load_engine(directory, device="cpu", dtype=chosen.dtype, weights=chosen.weights, threads=chosen.threads)
    engine.warm_up()
    eight = None
    if probe() is None:
        print(UNAVAILABLE, file=sys.stderr)
    else:
        eight = load_engine(directory, device="cpu", dtype=chosen.dtype, weights="int8", threads=chosen.threads)
    with tempfile.TemporaryDirectory(prefix="openjev-export-") as scratch:
        export(directory, Path(scratch) / "exported", dtype=dtype)
        stock = Stock(Path(scratch) / "exported", dtype)
    sample = _request(compiler, 0, 1, chosen.state)
    result: dict[str, Any] = {
        "machine": machine(),
        "isa": os.environ.get("ONEDNN_MAX_CPU_ISA", "as the processor has it"),
        "dtype": f"{str(dtype).removeprefix('torch.')} ({why})",
        "weights": chosen.weights,
        "state_tokens": len(sample.state),
        "rows": sample.tokens,
        "product_gflops": product_rates(),
        "steps": [],
    }
    for steps in (1, 2):
        numbers = range(1000 * steps, 1000 * steps + MOST_ROUNDS * chosen.rounds + 1)
        requests = (_request(compiler, number, steps, chosen.state) for number in numbers)
        result["steps"].append(measure(engine, eight, stock, requests, chosen.rounds))
        write_json(chosen.json, result)
        print(result["steps"][-1], flush=True)
    if eight is not None and chosen.rows is not None:
        rows = spread_rows(chosen.rows, chosen.row_count)
        result["int8_agreement"] = [agreement(compiler, engine, eight, rows, steps) for steps in (1, 2)]
        write_json(chosen.json, result)
        print(result["int8_agreement"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
