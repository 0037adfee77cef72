"""`openjev serve` on random weights that lie in no file: `python -m benchmarks.random_server DIRECTORY [--seed N]`.

The directory holds config.json and tokenizer.json (`benchmarks.server` writes them). Everything else is the product:
settings from OPENJEV_* variables, its loader, its engine, its front.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from unittest import mock

from openjev_server.engine import loading
from openjev_server.engine.sources import InMemory
from openjev_server.serving import serve
from openjev_server.settings import Settings

from benchmarks.released import random_tensors

__all__ = ["main"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    os.environ["OPENJEV_MODEL"] = str(chosen.directory)
    settings = Settings()
    device = loading.choose_device(settings.device)
    dtype, _ = loading.choose_dtype(device, settings.dtype)
    raw = json.loads((chosen.directory / "config.json").read_text(encoding="utf-8"))

    def tensors(*_: object) -> InMemory:
        return InMemory(random_tensors(raw, device=device, dtype=dtype, seed=chosen.seed))

    with mock.patch.object(loading, "open_source", tensors):
        return serve(settings)


if __name__ == "__main__":
    sys.exit(main())
