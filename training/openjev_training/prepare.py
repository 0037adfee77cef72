"""From the public data to what training reads: rows and texts behind the wall, and the fixed measuring sets."""

from __future__ import annotations

import json
import lzma
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .routing import routing_rows
from .rows import HELD_OUT, SPLITS, Guard, Row, read_rows, read_texts, sample_rows

__all__ = ["load_measures", "load_rows", "load_texts", "prepare"]

_SEED = 20261202


def _write(path: Path, items: Iterable[object]) -> int:
    count = 0
    with lzma.open(path, "wt", preset=1) as out:
        for item in items:
            out.write(json.dumps(item, ensure_ascii=False) + "\n")
            count += 1
    return count


def _read(path: Path) -> Iterator[list[Any]]:
    with lzma.open(path, "rt") as lines:
        for line in lines:
            yield json.loads(line)


def _as_list(row: Row) -> list[object]:
    return list(asdict(row).values())


def _as_row(raw: list[Any]) -> Row:
    task, kind, state, instructions, names, descriptions, gold, share = raw
    return Row(
        task,
        kind,
        state,
        instructions,
        tuple(names),
        tuple(descriptions),
        gold,
        None if share is None else tuple(share),
    )


def prepare(data: Path, out: Path, *, held_out: int = 1000, trained: int = 300) -> dict[str, int]:
    """Writes rows (with a flag: usable when held-out tasks are excluded), texts and measuring sets; returns counts.

    Measuring sets: `held-out` (of all splits), `test` (trained tasks), `routing`, `cal` (trained tasks' cal split).
    """
    out.mkdir(parents=True, exist_ok=True)
    guard = Guard.from_data(data)
    counts: Counter[str] = Counter()

    def rows() -> Iterator[object]:
        for row in read_rows(data, "train"):
            allowed = guard.allows_row(row)
            counts["rows"] += 1
            counts["rows allowed"] += allowed
            yield [allowed, *_as_list(row)]

    def texts() -> Iterator[object]:
        for i, (source, text) in enumerate(read_texts(data)):
            if source == "anth" and i % 12:
                continue
            counts["texts"] += 1
            if guard.allows_text(source, text):
                counts["texts allowed"] += 1
                yield [source, text]

    _write(out / "rows.jsonl.xz", rows())
    _write(out / "texts.jsonl.xz", texts())
    everywhere: dict[str, list[Row]] = defaultdict(list)
    test: dict[str, list[Row]] = defaultdict(list)
    cal: dict[str, list[Row]] = defaultdict(list)
    for split in SPLITS:
        for row in read_rows(data, split):
            if row.task in HELD_OUT:
                everywhere[row.task].append(row)
            elif split != "train":
                (test if split == "test" else cal)[row.task].append(row)
    measures: list[list[object]] = []
    for name, groups, size in (("held-out", everywhere, held_out), ("test", test, trained), ("cal", cal, trained)):
        for task in sorted(groups):
            measures += [[name, *_as_list(row)] for row in sample_rows(groups[task], size, _SEED)]
    sgd = sample_rows(everywhere["sgd.service"], 300, _SEED + 1)
    clinc = sample_rows(test["clinc150.domain"], 300, _SEED + 1)
    measures += [["routing", *_as_list(row)] for row in routing_rows(sgd, clinc)]
    counts["measures"] = _write(out / "measures.jsonl.xz", measures)
    return dict(counts)


def load_rows(prepared: Path, *, everything: bool) -> list[Row]:
    """Training rows; without `everything` only those behind the wall."""
    return [_as_row(raw[1:]) for raw in _read(prepared / "rows.jsonl.xz") if everything or raw[0]]


def load_texts(prepared: Path) -> list[tuple[str, str]]:
    return [(str(source), str(text)) for source, text in _read(prepared / "texts.jsonl.xz")]


def load_measures(prepared: Path) -> dict[str, list[Row]]:
    """Measuring sets by name."""
    out: dict[str, list[Row]] = defaultdict(list)
    for raw in _read(prepared / "measures.jsonl.xz"):
        out[str(raw[0])].append(_as_row(raw[1:]))
    return dict(out)
