"""The log of a run: one JSON object a line, as it happens."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["Log", "Losses"]


class Log:
    def __init__(self, path: Path) -> None:
        self._path, self._begin = path, time.time()

    def __call__(self, **values: Any) -> None:
        line = json.dumps({"t": round(time.time() - self._begin, 1), **values})
        print(line, flush=True)
        with self._path.open("a") as file:
            file.write(line + "\n")


class Losses:
    """Means of the losses since the last time they were read; summed on the device, so that no step waits for it."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def add(self, parts: dict[str, Tensor]) -> None:
        for name, value in parts.items():
            self._sums[name] = self._sums.get(name, torch.zeros_like(value)) + value.detach()
        self._count += 1

    def read(self) -> dict[str, float]:
        means = {name: round(float(value) / self._count, 4) for name, value in self._sums.items()}
        self._sums, self._count = {}, 0
        return means
