"""README's performance tables out of the kept results: `python -m benchmarks.table` prints them.

`compat_tests/claims.py` puts them between README's markers and fails when they differ. A part that was not measured
has no table; a row that failed says so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["correctness", "section"]

ROOT = Path(__file__).resolve().parents[1]
RESULTS = "benchmarks/results"
REPLAY_ROWS = (
    ("a", "stock transformers the seed's way: 56 padded canvases of 256 tokens, 2 steps"),
    ("b", "grouped: the same 56 canvases, 2 steps"),
    ("b-float8", "the same with FP8 weights"),
    ("b-int4", "the same with 4-bit weights"),
    ("c", "isolated: a canvas of 32 tokens for each question, 2 steps"),
    ("c-float8", "the same with FP8 weights"),
    ("c-int4", "the same with 4-bit weights"),
    ("c256", "isolated, canvases of 256 tokens, 2 steps"),
    ("d", "isolated, canvases of 32 tokens, 1 step"),
    ("f", "over HTTP, isolated, 2 steps: 20 cases one after another, cold cache"),
)
SUITES = (("http_suite.json", "bf16"), ("http_suite-float8.json", "FP8"), ("http_suite-int4.json", "4 bits"))


def section(root: Path = ROOT) -> str:
    """Everything, in Markdown; empty when nothing was measured."""
    return "\n\n".join([*_replays(root), *_suites(root), *_cpu(root), *correctness(_kept(root, "gpu_check.json"))])


def _kept(root: Path, name: str) -> dict[str, Any] | None:
    path = root / RESULTS / name
    if not path.is_file():
        return None
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return None if kept.get("tiny") else kept


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    align = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, align, *rows))


def _replays(root: Path) -> Iterator[str]:
    for name, what in (
        ("replay408-rule.json", "every question 40 prompt tokens"),
        ("replay408-billed.json", "prompt tokens as the hosted model billed them, 411 an invoice question"),
    ):
        kept = _kept(root, name)
        if kept is None:
            continue
        yield (
            f"The seed's {kept['questions']} questions by their shapes ({what}): {kept['canvases']} canvases, "
            f"{kept['prompt_tokens_grouped']:,} prompt tokens, {kept['prompt_tokens_unique']:,} when a document is "
            f"read once. One {kept['machine']['device']}, random weights of the 26B-A4B architecture. The seed "
            f"recorded {kept['seed_h100_s']:.1f} s on an H100; the hosted model's 20 saved cases add up to "
            f"{kept['hosted_s']:.2f} s, and only the row over HTTP may be held against them.\n\n"
            + _table(("", "seconds", "floor", "times the floor", "peak memory"), list(_replay_rows(kept["rows"])))
        )


def _replay_rows(rows: Mapping[str, Any]) -> Iterator[list[str]]:
    for key, title in REPLAY_ROWS:
        row = rows.get(key)
        if row is None:
            continue
        if "failed" in row:
            yield [title, "failed", "", "", ""]
            continue
        seconds, floor = row["seconds"]["median"], row.get("floor_s")
        yield [
            title,
            f"{seconds:.2f}",
            f"{floor:.2f}" if floor else "",
            f"{seconds / floor:.1f}" if floor else "",
            f"{row['peak_gib']:.0f} GiB" if "peak_gib" in row else "",
        ]


def _suites(root: Path) -> Iterator[str]:
    kept = [(title, suite) for name, title in SUITES if (suite := _kept(root, name)) is not None]
    if not kept:
        return
    yield f"Over HTTP on one {kept[0][1]['machine']['device']}, the same random weights:"
    for rows in (_latency(kept), _throughput(kept), _scaling(kept), _others(kept)):
        if rows:
            yield rows


def _part(suite: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    part = suite.get(name)
    return None if part is None or "failed" in part else part


def _latency(kept: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """A row a request, two columns for each kind of weights; the floor is that of the first kind."""
    parts = [(title, part) for title, suite in kept if (part := _part(suite, "latency_gpu"))]
    if not parts:
        return ""
    state = parts[0][1]["state_tokens"]
    header = [f"{state}-token state, one client: p50 / p95, of it the engine", *(title for title, _ in parts), "floor"]
    rows = []
    for at, row in enumerate(parts[0][1]["rows"]):
        what = f"{_counted(row['questions'], 'question')}, {_counted(row['steps'], 'step')}"
        shown = [part["rows"][at] for _, part in parts]
        rows.append(
            [
                what,
                *(f"{one['p50_ms']:.1f} / {one['p95_ms']:.1f}, {one['engine_p50_ms']:.1f} ms" for one in shown),
                f"{row['floor_ms']:.1f} ms" if row.get("floor_ms") else "",
            ]
        )
    return _table(header, rows)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count > 1)}"


def _throughput(kept: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    rows = []
    for title, suite in kept:
        if part := _part(suite, "throughput"):
            rows += [
                [
                    f"{_counted(row['clients'], 'client')}, {row['layout']}, {_counted(row['steps'], 'step')}, {title}",
                    f"{row['judgments_per_s']:,.0f}",
                    f"{row['p50_ms']:.0f} ms" if "p50_ms" in row else "",
                    str(row["failures"]),
                    f"{row['gpu_peak_gib']:.0f} GiB" if "gpu_peak_gib" in row else "",
                ]
                for row in part["rows"]
            ]
    header = ("prompts of 249 tokens with six yes/no questions", "judgments a second", "p50", "failures", "GPU memory")
    return _table(header, rows) if rows else ""


def _scaling(kept: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """A row a size, a column for each kind of weights."""
    parts = [(title, part) for title, suite in kept if (part := _part(suite, "scaling"))]
    if not parts:
        return ""
    first = parts[0][1]
    on = f"of {first['question_tokens']} tokens on {first['state_tokens']:,}"
    rows = [
        [f"{_counted(row['questions'], 'question')} {on}", *(_ms(part["questions"][at]["p50_ms"]) for _, part in parts)]
        for at, row in enumerate(first["questions"])
    ]
    beyond = f"each question beyond {first['beyond']}"
    rows.append([beyond, *(f"{part['ms_per_question_beyond']:.2f} ms" for _, part in parts)])
    rows += [
        [f"one question on {row['state']:,} tokens", *(_ms(part["states"][at]["p50_ms"]) for _, part in parts)]
        for at, row in enumerate(first["states"])
    ]
    return _table(("scaling, 1 step: p50", *(title for title, _ in parts)), rows)


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.0f} ms"


def _others(kept: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    rows = []
    for title, suite in kept:
        if part := _part(suite, "interleave"):
            rows += [
                ["p95 of a 500-token request, idle", title, f"{part['idle']['p95_ms']:.1f} ms"],
                ["the same beside 32,000-token requests", title, f"{part['busy']['p95_ms']:.1f} ms"],
                [f"a chunk of {part['chunk_tokens']:,} tokens", title, f"{part['chunk_ms']:.1f} ms"],
            ]
        if part := _part(suite, "prefix"):
            turns = f"a turn of {part['turn_tokens']} tokens appended, against those tokens alone"
            rows += [
                [turns, title, f"{part['ratio']:.2f} times"],
                [
                    f"a state of {part['beginning_tokens']:,} tokens asked again",
                    title,
                    f"{part['repeated_state']['p50_ms']:.1f} ms",
                ],
            ]
    return _table(("sharing", "weights", ""), rows) if rows else ""


def _cpu(root: Path) -> Iterator[str]:
    rows = []
    for path in sorted((root / RESULTS).glob("cpu*.json")):
        kept = _kept(root, path.name)
        if kept is None:
            continue
        machine = kept["machine"]
        where = f"{machine['device']}, {machine['threads']} threads, AMX {'on' if _amx(kept) else 'off'}"
        if kept["isa"].startswith("AVX"):
            where += f" ({kept['isa']})"
        same = {
            found["steps"]: f"{found['share']:.1%} of {found['rows']:,}" for found in kept.get("int8_agreement", ())
        }
        for steps in kept["steps"]:
            ms, count = steps["ms"], steps["steps"]
            what = f"{where}, {count} step{'s' * (count > 1)}"
            stock = ("padded_batch", "expanded_cache")
            for title, ways, kept_answers in (
                (what, ("ours", "repeated"), ""),
                (f"{what}, int8", ("int8", "int8_repeated"), same.get(count, "")),
            ):
                if ways[0] in ms:
                    rows.append([title, *(f"{ms[way]['median']:.0f} ms" for way in (*ways, *stock)), kept_answers])
    if rows:
        header = (
            "5 questions, 500-token state",
            "ours",
            "state known",
            "stock, padded batch",
            "stock, expanded cache",
            "top answers as in float32",
        )
        yield "The embedded checkpoint on a CPU, medians:\n\n" + _table(header, rows)


def _amx(kept: Mapping[str, Any]) -> bool:
    """Whether oneDNN may use tiles: the processor has them, and no ISA setting stops before them."""
    return bool(kept["machine"]["amx"]) and not kept["isa"].startswith("AVX")


def correctness(kept: Mapping[str, Any] | None) -> Iterator[str]:
    """Tables of what `gpu_check` keeps: agreement with the reference, and drift by weights."""
    if kept is None:
        return
    yield f"Is it right? One {kept['machine']['device']}, two steps (`python -m benchmarks.gpu_check`):"
    rows = [
        [
            f"{name}: {found['engine']}, against {found['reference']['engine']}",
            f"{found['reference']['slots']:,}",
            " / ".join(f"{found['reference'][f'relative_error_{which}']:.2g}" for which in ("median", "p99", "max")),
            str(found["reference"]["flips_above_margin"]),
            f"{found['reference']['share_above_margin']:.0%}",
            f"{found['packing']['probability_change_max']:.2g}" if "packing" in found else "",
            f"{found['soak']['answered']:,} of {found['soak']['requests']:,}" if "soak" in found else "",
        ]
        if "reference" in found
        else [f"{name}: failed", *[""] * 6]
        for name, found in kept["models"].items()
    ]
    header = (
        "checkpoint",
        "slots",
        "relative error of a slot's logits: median / p99 / max",
        "other answers where the reference's first two are 0.1 nats apart",
        "slots where they are",
        "alone or among 30 others: largest change of a probability",
        "random requests answered",
    )
    yield _table(header, rows)
    rows = [
        [
            f"{name}, {weights}",
            f"{moved['slots']:,}",
            " / ".join(f"{moved[f'probability_change_{which}']:.2g}" for which in ("median", "p99", "max")),
            f"{moved['flip_share']:.2%}",
            f"{moved['flip_share_above_margin']:.2%}",
        ]
        for name, found in kept["models"].items()
        for weights, moved in found.get("drift", {}).items()
    ]
    drifts = (
        "weights quantised while loading, against the same engine without",
        "slots",
        "change of a slot's probabilities: median / p99 / max",
        "other answers",
        "of the slots with 0.1 nats between the first two",
    )
    if rows:
        yield _table(drifts, rows)


def main() -> int:
    print(section() or "nothing is measured yet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
