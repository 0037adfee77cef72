"""One engine process, as the front sees it: started, spoken to, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from openjev_server.engine.protocol import EngineError, EngineInfo, EngineRequest, EngineResult
from openjev_server.fleet.codec import (
    decode_error,
    decode_info,
    decode_result,
    decode_text,
    encode_json,
    encode_request,
)
from openjev_server.fleet.connection import Connection
from openjev_server.fleet.frames import Frame, FrameKind, MalformedFrame

__all__ = ["Answered", "EngineProcess", "EngineSpec", "ProcessEnded"]

SECRETS = ("OPENJEV_API_KEYS", "OPENJEV_API_KEY")
"""Variables that an engine has no use for."""

Outcome = EngineResult | EngineError | None
"""None: the engine did not answer, because the request was cancelled or the engine stops."""
Answered = Callable[[int, Outcome], None]


class ProcessEnded(Exception):
    """An engine process is not there any more, or cannot do its work; the message says why, where that is known."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """How to make an engine in a process of its own."""

    name: str
    """For logs: its number and device."""
    options: Mapping[str, Any]
    """For the loader; what JSON can hold."""
    token_budget: int
    loader: str = "openjev_server.fleet.worker:engine_of_settings"
    """`module:function`, a `worker.Loader`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables on top of this process's own."""


class EngineProcess(Connection):
    """The front's end of the socket, and the process behind it.

    Args:
        answered: called with number and outcome of every request that was sent, at most once each.
        progress: called with the name of every loaded tensor.
    """

    def __init__(self, spec: EngineSpec, answered: Answered, progress: Callable[[str], None] | None = None) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self.spec = spec
        self.loaded: asyncio.Future[EngineInfo] = loop.create_future()
        """Fails with ProcessEnded when the engine cannot be loaded, or the process ends before."""
        self.warm: asyncio.Future[None] = loop.create_future()
        """Likewise."""
        self.gone = asyncio.Event()
        """Set once nothing more can come from the process."""
        self._answered = answered
        self._progress = progress
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_warm(self) -> bool:
        return self.up and self.warm.done() and self.warm.exception() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def start(self) -> None:
        """Starts the process and tells it what to load. Raises OSError."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            # From the event loop's own thread: Linux ends the child with the thread that started it, see `die_with`.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "openjev_server.fleet.worker", str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                env=_environment() | dict(self.spec.environment),
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
            theirs.close()
            await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=ours.dup())
        setup = {
            "loader": self.spec.loader,
            "options": dict(self.spec.options),
            "token_budget": self.spec.token_budget,
        }
        self.send(FrameKind.SETUP, 0, encode_json(setup))

    def request(self, number: int, request: EngineRequest) -> None:
        """Asks; the answer comes to `answered`."""
        self.send(FrameKind.REQUEST, number, encode_request(request))

    def cancel(self, number: int) -> None:
        """Nobody waits for this request any more; `answered` is called all the same."""
        self.send(FrameKind.CANCEL, number)

    async def stop(self, timeout_s: float) -> int | None:
        """Lets the process finish if it is still there, then ends it and everything in its group.

        Returns the process's exit status once there is no process any more; None if it was never started.
        """
        if self.up:
            self.send(FrameKind.STOP)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), timeout_s)
        self.close()
        if self._process is None:
            return None
        if self._process.returncode is None:
            # Not waited for yet, so that the number of the group is still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return await asyncio.to_thread(self._process.wait)

    def received(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.RESULT:
                self._answered(frame.number, decode_result(frame.payload))
            case FrameKind.ERROR:
                self._answered(frame.number, decode_error(frame.payload))
            case FrameKind.CANCELLED:
                self._answered(frame.number, None)
            case FrameKind.PROGRESS:
                if self._progress is not None:
                    self._progress(decode_text(frame.payload))
            case FrameKind.LOADED if not self.loaded.done():
                self.loaded.set_result(decode_info(frame.payload))
            case FrameKind.FAILED if not self.loaded.done():
                _fail(self.loaded, ProcessEnded(decode_text(frame.payload)))
            case FrameKind.WARM if not self.warm.done():
                self.warm.set_result(None)
            case unexpected:
                raise MalformedFrame(f"an unexpected frame: {unexpected.name}")

    def connection_lost(self, _error: Exception | None) -> None:
        for future in (self.loaded, self.warm):
            _fail(future, ProcessEnded())
        self.gone.set()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever awaits it gets it; if nobody does, that is no news


def _environment() -> dict[str, str]:
    """This process's own, with its module path: an engine finds what its front found."""
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return kept | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
