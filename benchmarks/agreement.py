"""The reports behind README's "How close to Jev": `python benchmarks/agreement.py [--url http://127.0.0.1:8000]`.

Compares the recorded runs of the seed with recorded answers of Jev, and with --url the answers of a running server too;
writes one report each to `benchmarks/results/agreement/`. Then `python compat_tests/claims.py` updates README.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from openjev_compat.comparison import Comparison, LiveSide, RecordedSide, compare
from openjev_compat.cost import Prices
from openjev_compat.metrics import Thresholds
from openjev_compat.output import without_texts
from openjev_compat.pairing import Selection
from openjev_compat.report import Report
from rich.console import Console

__all__ = ["EMBEDDED", "RECORDED", "Run", "run"]

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures"
RESULTS = ROOT / "benchmarks" / "results" / "agreement"


@dataclass(frozen=True, slots=True)
class Run:
    """One comparison: the result file's name, and which answers."""

    name: str
    left: str
    right: str
    on: str | None = None
    steps: int | None = None


RECORDED = (
    Run("public-evals-1step", "public_evals_1step", "public_evals"),
    Run("public-evals-grouped-1step", "public_evals_grouped_1step", "public_evals"),
    Run("public-evals-grouped-2step", "public_evals_grouped_2step", "public_evals"),
    Run("customer-voice-1step", "every_lab", "every_lab", on="every-lab/customer-voice", steps=1),
    Run("customer-voice-4step", "every_lab", "every_lab", on="every-lab/customer-voice", steps=4),
)
EMBEDDED = "embedded"


def run(recorded: Run) -> Report:
    """The report of one recorded run."""
    return _compare(
        RecordedSide((FIXTURES / "seed" / f"{recorded.left}.jsonl",)),
        FIXTURES / "jev" / f"{recorded.right}.jsonl",
        recorded.on,
        recorded.steps,
        ("DiffusionGemma", "Jev"),
    )


def _compare(
    left: RecordedSide | LiveSide,
    right: Path,
    on: str | None,
    steps: int | None,
    names: tuple[str, str] | None,
) -> Report:
    result = compare(
        Comparison(
            left=left,
            right=RecordedSide((right,)),
            right_live=None,
            selection=Selection(on=on),
            steps=steps,
            run=None,
            names=names,
            thresholds=Thresholds(),
            prices=Prices(),
            concurrency=2,
            timeout_s=120.0,
        ),
        Console(stderr=True),
    )
    if result.failures:
        raise SystemExit("\n".join(result.failures))
    return result.report


def _write(name: str, report: Report) -> None:
    # Texts are in the fixtures already, and latencies belong to the machine, not to the comparison.
    plain = replace(without_texts(report), latencies_ms=(), latency=None)
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain.to_json(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(path.relative_to(ROOT))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Write the agreement reports that README quotes.")
    parser.add_argument("--url", help="ask this server, on the embedded checkpoint, too")
    url: str | None = parser.parse_args().url
    for recorded in RECORDED:
        _write(recorded.name, run(recorded))
    if url is not None:
        live = LiveSide(url, None, "jev-latest", None, None, None, None)
        _write(EMBEDDED, _compare(live, FIXTURES / "jev", None, None, None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
