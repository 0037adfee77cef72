"""How benchmarks keep and summarise what they measured."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["DIRECTORY", "machine", "spread", "write_json"]

DIRECTORY = Path(__file__).parent / "results"


def write_json(path: Path, value: Any) -> None:
    """Whole or not at all, so that a killed run keeps what it had."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(path.suffix + ".part")
    scratch.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    scratch.replace(path)


def spread(values: Sequence[float], digits: int = 4) -> dict[str, Any]:
    """Median, extremes and count of repeated measurements."""
    return {
        "median": round(statistics.median(values), digits),
        "fastest": round(min(values), digits),
        "slowest": round(max(values), digits),
        "runs": len(values),
    }


def machine() -> dict[str, Any]:
    """What ran it."""
    import torch
    from openjev_server.engine.hardware import describe_hardware

    hardware = describe_hardware()
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if hardware.cuda:
        return {"device": hardware.cuda[0].name, "cores": hardware.cores, **versions}
    return {
        "device": hardware.processor,
        "cores": hardware.cores,
        "threads": hardware.threads,
        "amx": hardware.amx,
        **versions,
    }
