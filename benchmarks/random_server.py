"""`openjev serve` on random weights that lie in no file: `python -m benchmarks.random_server DIRECTORY`.

The directory holds config.json and tokenizer.json (`benchmarks.server` writes them). Everything else is the product:
settings from OPENJEV_* variables, its loader, its engine processes, its front.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from openjev_server import serving
from openjev_server.engine.protocol import Engine
from openjev_server.fleet.plan import engine_devices, engine_specs
from openjev_server.fleet.process import EngineSpec
from openjev_server.fleet.worker import engine_of_settings
from openjev_server.settings import Settings

__all__ = ["main", "random_engine", "specs_loaded_by"]

LOADER = "benchmarks.random_server:random_engine"


def random_engine(options: Mapping[str, Any], progress: Callable[[str], None]) -> Engine:
    """The loader of an engine process; see `fleet.worker.Loader`."""
    with _random_source(Path(options["directory"]), Settings(**options["settings"])):
        return engine_of_settings(options, progress)


@contextmanager
def _random_source(directory: Path, settings: Settings) -> Iterator[None]:
    """While it lasts, the product's loader finds random tensors in every directory."""
    from openjev_server.engine import loading
    from openjev_server.engine.sources import InMemory

    from benchmarks.released import random_tensors

    device = loading.choose_device(settings.device)
    dtype, _ = loading.choose_dtype(device, settings.dtype)
    raw = json.loads((directory / "config.json").read_text(encoding="utf-8"))

    def source(*_: object) -> InMemory:
        return InMemory(random_tensors(raw, device=device, dtype=dtype))

    with mock.patch.object(loading, "open_source", source):
        yield


def specs_loaded_by(
    loader: str, settings: Settings, devices: tuple[str, ...], directory: Path
) -> tuple[EngineSpec, ...]:
    """`engine_specs` with another loader, `module:function`."""
    return tuple(replace(spec, loader=loader) for spec in engine_specs(settings, devices, directory))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    chosen = parser.parse_args()
    os.environ["OPENJEV_MODEL"] = str(chosen.directory)
    settings = Settings()
    with mock.patch.object(serving, "engine_specs", partial(specs_loaded_by, LOADER)):
        if engine_devices(settings):
            return serving.serve(settings)
        with _random_source(chosen.directory, settings):
            return serving.serve(settings)


if __name__ == "__main__":
    sys.exit(main())
