"""For all tests of the server."""

from __future__ import annotations

import os
import signal
from ctypes.util import find_library

# Triton reads this once, when it is first imported, which any test module may do.
if find_library("cuda") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_configure() -> None:
    """A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C tests would never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
