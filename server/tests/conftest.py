"""For all tests of the server."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """A shell starts background jobs with SIGINT ignored, and children inherit that: Ctrl-C tests would never end."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
