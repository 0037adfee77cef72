"""The seed's 408 questions by their shapes: `python -m benchmarks.replay408 --rows a,b,c,c256,d,e,f --device cuda`.

Rows, all in one process over the same random weights:

  a     the seed's way in stock transformers: `generate` on padded batches of whole prompts, 56 canvases of 256 tokens,
        two steps (once: it takes most of a minute)
  b     this engine, grouped: the same 56 canvases, a request per node, two steps
  c     this engine, isolated: a canvas of 32 tokens per question, two steps
  c256  as c with canvases of 256 tokens
  d     as c with one step
  e     b and c with FP8 weights; e4: with 4-bit weights
  f     over HTTP: the 20 cases one after another, the nodes of a case at once, as c; the sum of the cases' times

Every run draws new documents, so no state cache can know one beforehand. Each row has its own floor (`floors`), and is
written as soon as it is measured.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.protocol import Engine, EngineError, EngineRequest

from benchmarks import released
from benchmarks.floors import Curve, floor_of, touched_curve
from benchmarks.load import Connection, concurrently
from benchmarks.results import DIRECTORY, machine, spread, write_json
from benchmarks.server import running_server
from benchmarks.shapes import Shapes, load
from benchmarks.stock import run_stock
from benchmarks.text import Text
from benchmarks.workload import grouped_requests, isolated_requests

__all__ = ["Replay", "main"]

ROWS = ("a", "b", "c", "c256", "d", "e", "f")
QUANTISED = {"e": ("float8", 1.0), "e4": ("int4", 0.5625)}
"""The loader's name, and bytes a weight; 4 bits have a scale and a lowest value, 16 bits each, for every 64."""
SEED_S = 51.114
"""What the seed recorded for row a's work on an H100."""
HOSTED_S = 8.871
"""The 20 saved cases of the hosted model, added up."""

Make = Callable[[np.random.Generator], list[EngineRequest]]


class Replay:
    """Measures rows and keeps them in one JSON file."""

    def __init__(self, shapes: Shapes, raw: dict[str, Any], *, device: torch.device, runs: int, out: Path) -> None:
        self._shapes = shapes
        self._raw = raw
        self._config = BackboneConfig.from_dict(raw)
        self._device = device
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._runs = runs
        self._out = out
        self._rng = np.random.default_rng(408)
        self._curve: Curve | None = None
        self.result: dict[str, Any] = {
            "machine": machine(),
            "questions": sum(case.questions for case in shapes.cases),
            "canvases": len(shapes.prompts),
            "prompt_tokens_grouped": sum(shapes.prompts),
            "prompt_tokens_unique": shapes.unique_tokens,
            "seed_h100_s": SEED_S,
            "hosted_s": HOSTED_S,
            "rows": {},
        }

    def run(self, rows: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
        """Measures the rows; `options` go to the engine's loader. A row that fails says why, and the next one runs."""
        if set(rows) & {"a", "b", "c", "c256", "d"}:
            self._in_process(rows, options)
        for row in QUANTISED.keys() & set(rows):
            self._keep(row, partial(self._quantised, row, options))
        if "f" in rows:
            self._keep("f", lambda: self._over_http(options))
        return self.result

    def _in_process(self, rows: Sequence[str], options: dict[str, Any]) -> None:
        named = released.random_tensors(self._raw, device=self._device, dtype=self._dtype)
        model = released.stock_model(self._raw, named, device=self._device, dtype=self._dtype)
        touched = released.experts_touched(model, rows=4096 if self._device.type == "cuda" else 256)
        self._curve = touched_curve(touched)
        self.result["experts_touched"] = touched
        self.result["experts_touched_mean"] = {size: round(mean(counts), 1) for size, counts in touched.items()}
        if "a" in rows:
            self._keep("a", lambda: self._stock(model))
        if self._measured(rows):
            # The engine takes over the model's tensors: the weights are in memory once.
            tensors = released.tensors_of(model, self._raw)
            del model
            try:
                self._ours(rows, tensors, options)
            except Exception as error:  # no engine, no rows; the other rows have engines of their own
                self._write("engine", {"failed": f"{type(error).__name__}: {error}"[:2000]})

    def _measured(self, rows: Sequence[str]) -> list[tuple[str, Make]]:
        makes: dict[str, Make] = {
            "b": lambda rng: grouped_requests(self._shapes, rng, self._config.vocab_size, steps=2),
            "c": lambda rng: isolated_requests(self._shapes, rng, self._config.vocab_size, width=32, steps=2),
            "c256": lambda rng: isolated_requests(self._shapes, rng, self._config.vocab_size, width=256, steps=2),
            "d": lambda rng: isolated_requests(self._shapes, rng, self._config.vocab_size, width=32, steps=1),
        }
        return [(row, makes[row]) for row in rows if row in makes]

    def _ours(
        self,
        rows: Sequence[str],
        tensors: list[tuple[str, torch.Tensor]],
        options: dict[str, Any],
        suffix: str = "",
        per_weight: float = 2.0,
    ) -> None:
        started = time.perf_counter()
        engine = released.open_engine(
            self._raw,
            tensors,
            device=str(self._device),
            dtype=str(self._dtype).removeprefix("torch."),
            request_rows=max(self._shapes.prompts) + 256,
            **options,
        )
        tensors.clear()
        engine.warm_up()
        self._synchronize()
        self.result[f"load_and_warm_up_s{suffix}"] = round(time.perf_counter() - started, 2)
        try:
            for row, make in self._measured(rows):
                self._keep(row + suffix, partial(self._row, engine, make, per_weight))
        finally:
            engine.close()
        del engine
        self._free()

    def _row(self, engine: Engine, make: Make, per_weight: float) -> dict[str, Any]:
        self._timed(engine, make)
        self._reset_peak()
        times = [self._timed(engine, make) for _ in range(self._runs)]
        floor = floor_of(self._config, make(self._rng), per_weight=per_weight, experts=self._curve)
        return {"seconds": spread(times), **floor.as_dict(), **self._peak()}

    def _timed(self, engine: Engine, make: Make) -> float:
        requests = make(self._rng)
        self._synchronize()
        started = time.perf_counter()
        outcomes = engine.run(requests)
        took = time.perf_counter() - started
        failed = [str(outcome) for outcome in outcomes if isinstance(outcome, EngineError)]
        if failed:
            raise RuntimeError(f"{len(failed)} of {len(outcomes)} requests failed: {failed[0]}")
        return took

    def _stock(self, model: Any) -> dict[str, Any]:
        def each(requests: list[EngineRequest]) -> list[EngineRequest]:
            return [EngineRequest(r.state, (block,), r.steps) for r in requests for block in r.blocks]

        requests = each(grouped_requests(self._shapes, self._rng, self._config.vocab_size, steps=2))
        smallest = min(requests, key=lambda r: len(r.state) + len(r.blocks[0].suffix))
        run_stock(model, [smallest, smallest])  # kernels, and what transformers imports on the way
        self._free()
        self._reset_peak()
        done = run_stock(model, requests)
        # The seed reads a document once per canvas.
        floor = floor_of(self._config, requests, share_states=False, experts=self._curve)
        return {
            "seconds": {"median": round(done.seconds, 3), "runs": 1},
            "out_of_memory_s": round(done.failed_seconds, 3),
            "out_of_memory_at": list(done.failures),
            "batches": [[count, tokens, round(took, 3)] for count, tokens, took in done.batches],
            **floor.as_dict(),
            **self._peak(),
        }

    def _quantised(self, row: str, options: dict[str, Any]) -> dict[str, Any]:
        weights, per_weight = QUANTISED[row]
        tensors = list(released.random_tensors(self._raw, device=self._device, dtype=self._dtype))
        self._ours(("b", "c"), tensors, {**options, "weights": weights}, suffix=f"-{weights}", per_weight=per_weight)
        kept = [self.result["rows"][f"{name}-{weights}"] for name in ("b", "c")]
        return {"see": f"b-{weights} and c-{weights}", "seconds": kept[0].get("seconds")}

    def _over_http(self, options: dict[str, Any]) -> dict[str, Any]:
        """Row f: every question a yes/no of exactly its suffix length; states longer by nothing, new in every run."""
        text = Text(seed=408)
        settings = {"OPENJEV_DEVICE": str(self._device), "OPENJEV_STEPS": "2"}
        settings |= {f"OPENJEV_{name.upper()}": str(value) for name, value in options.items() if value is not None}
        widest = max(len(case.nodes) for case in self._shapes.cases)
        with running_server(raw=self._raw, settings=settings) as server:
            connections = [Connection(server.url) for _ in range(widest)]
            runs = []
            for run in range(self._runs + 1):
                cases = [self._one_case(connections, text, case) for case in self._shapes.cases]
                if run:
                    runs.append(cases)
            for connection in connections:
                connection.close()
        sums = [sum(cases) for cases in runs]
        middle = runs[sums.index(sorted(sums)[len(sums) // 2])]
        requests = isolated_requests(self._shapes, self._rng, self._config.vocab_size, width=32, steps=2)
        floor = 0.0
        first = 0
        for case in self._shapes.cases:
            own = requests[first : first + len(case.nodes)]
            floor += floor_of(self._config, own, experts=self._curve).seconds
            first += len(case.nodes)
        return {
            "seconds": spread(sums),
            "cases": {case.id: round(took, 4) for case, took in zip(self._shapes.cases, middle, strict=True)},
            "floor_s": round(floor, 5),
            "server_ready_s": round(server.ready_s, 1),
        }

    @staticmethod
    def _one_case(connections: Sequence[Connection], text: Text, case: Any) -> float:
        state = text.state(case.document + 60)
        bodies = [
            text.body(state=state, questions=len(node.options), suffix=max(case.question, text.question_overhead + 1))
            for node in case.nodes
        ]
        took, replies = concurrently(connections, bodies)
        for reply in replies:
            if reply.status != 200:
                raise RuntimeError(f"{case.id}: {reply.status} {reply.body[:200]!r}")
        return took

    def _keep(self, row: str, measure: Callable[[], dict[str, Any]]) -> None:
        started = time.perf_counter()
        try:
            measured = measure()
        except Exception as error:  # a row that cannot be measured must not cost the others
            measured = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        self._free()
        self._write(row, {**measured, "wall_s": round(time.perf_counter() - started, 1)})

    def _write(self, row: str, measured: dict[str, Any]) -> None:
        self.result["rows"][row] = measured
        write_json(self._out, self.result)
        print(f"{row}: {_short(measured)}", flush=True)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def _free(self) -> None:
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _reset_peak(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def _peak(self) -> dict[str, float]:
        if self._device.type != "cuda":
            return {}
        return {"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)}


def _short(row: dict[str, Any]) -> str:
    if "failed" in row:
        return f"FAILED {row['failed']}"
    seconds = (row.get("seconds") or {}).get("median")
    return f"{seconds} s, floor {row.get('floor_s')} s, peak {row.get('peak_gib')} GiB"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="default %(default)s")
    parser.add_argument("--shapes", choices=("rule", "billed"), default="rule", help="see benchmarks.shapes")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=int, default=3, help="measured runs of b to f after one to warm up")
    parser.add_argument("--layers", type=int, help="fewer layers than the model's 30")
    parser.add_argument("--token-budget", type=int)
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few, short cases, for a CPU")
    parser.add_argument("--json", type=Path, help="default results/replay408-SHAPES.json")
    chosen = parser.parse_args(arguments)
    rows = chosen.rows.split(",")
    if unknown := set(rows) - {*ROWS, *QUANTISED}:
        parser.error(f"unknown rows: {', '.join(sorted(unknown))}")
    shapes = load(chosen.shapes)
    if chosen.tiny:
        shapes = shapes.part(0.02, cases=1)
    out = chosen.json or DIRECTORY / f"replay408-{chosen.shapes}.json"
    raw = released.configuration(tiny=chosen.tiny, layers=chosen.layers)
    replay = Replay(shapes, raw, device=torch.device(chosen.device), runs=chosen.runs, out=out)
    replay.result |= {"shapes": chosen.shapes, "tiny": chosen.tiny, "layers": raw["text_config"]["num_hidden_layers"]}
    result = replay.run(rows, {"token_budget": chosen.token_budget})
    return 1 if any("failed" in row for row in result["rows"].values()) else 0


if __name__ == "__main__":
    sys.exit(main())
