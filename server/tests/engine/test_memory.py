"""The embedded checkpoint is loaded in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from openjev_server.bundle import EMBEDDED_MODEL, resolve_model
from openjev_server.engine.int8 import probe

MEGABYTE = 1_000_000
LIMIT = 400 * MEGABYTE
LOAD = """
import sys
from pathlib import Path
from openjev_server.engine.hardware import peak_bytes, resident_bytes
from openjev_server.engine.loading import load_engine
held = resident_bytes()
engine = load_engine(Path(sys.argv[1]), device="cpu", dtype=sys.argv[2], weights=sys.argv[3])
print(peak_bytes() - held)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize(("dtype", "weights"), [("float32", "auto"), ("bfloat16", "auto"), ("float32", "int8")])
def test_loading_adds_less_than_400_megabytes(dtype: str, weights: str) -> None:
    if weights == "int8" and probe() is None:
        pytest.skip("no 8-bit products here")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(resolve_model(EMBEDDED_MODEL)), dtype, weights],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=240,
        check=True,
    )
    # From what torch's import left to the highest point ever reached, so at most what loading added.
    assert 59_000_000 < int(done.stdout) < LIMIT
