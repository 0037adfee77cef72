"""The benchmarks over HTTP, all on one server: `python -m benchmarks.http_suite --parts latency_gpu,throughput`.

Loading and warming up once instead of five times; the modules named like the parts say what each measures.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from benchmarks import interleave, latency_gpu, prefix, scaling, throughput
from benchmarks.service import run_measures

__all__ = ["main"]

PARTS = {
    "latency_gpu": latency_gpu.measure,
    "throughput": throughput.measure,
    "scaling": scaling.measure,
    "interleave": interleave.measure,
    "prefix": prefix.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_measures(PARTS, __doc__, arguments, default="http_suite.json")


if __name__ == "__main__":
    sys.exit(main())
