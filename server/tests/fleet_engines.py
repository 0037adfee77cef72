"""What the processes of a fleet load in tests, and requests that make them misbehave."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from openjev_server.checkpoint import CannotLoad
from openjev_server.engine.fake import FAKE_INFO, FakeEngine
from openjev_server.engine.protocol import CanvasBlock, EngineError, EngineRequest, Int32, NonFiniteLogits

__all__ = ["NOISE", "POISON", "request_of", "scripted"]

POISON = 10_001
"""The first token of a state that kills its engine."""
NOISE = 10_002
"""Of one that has no finite answer."""


def ids(*values: int) -> Int32:
    return np.array(values, np.int32)


def request_of(name: int, tokens: int = 10) -> EngineRequest:
    """A request of so many tokens, recognisable by its first one."""
    canvas = CanvasBlock(ids(), np.array([[1, 2]], np.int32), ids(1), ids(5, 6), ids(0, 2))
    return EngineRequest(np.full(tokens - 2, name, np.int32), (canvas,), steps=1)


def scripted(options: Mapping[str, Any], progress: Callable[[str], None]) -> FakeEngine:
    """A loader. Of the options, all of which may be absent:

    `missing`: a file without which nothing loads; `slow_s`: how long loading takes; `crash`, `broken`: how it fails.
    `info`: what differs in the engine's info; `delay_s`: how long a pass takes; `log`: a file that gets a line with
    process and request for each request evaluated; `hold`: a file while which exists no request is answered.
    """
    progress("a.weight")
    time.sleep(options.get("slow_s", 0))
    if "missing" in options and not Path(options["missing"]).exists():
        raise CannotLoad(f"Cannot load it: no {Path(options['missing']).name}")
    if options.get("crash"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if options.get("broken"):
        raise ZeroDivisionError("a bug")

    def evaluated(request: EngineRequest) -> EngineError | None:
        name = int(request.state[0])
        if "log" in options:
            with Path(options["log"]).open("a") as log:
                log.write(f"{os.getpid()} {name}\n")
        if name == POISON:
            os.kill(os.getpid(), signal.SIGKILL)
        while "hold" in options and Path(options["hold"]).exists():
            time.sleep(0.005)
        return NonFiniteLogits("noise") if name == NOISE else None

    info = replace(FAKE_INFO, **options.get("info", {}))
    return FakeEngine(info, delay_s=options.get("delay_s", 0.0), failure=evaluated)
