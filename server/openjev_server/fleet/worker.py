"""An engine process: `python -m openjev_server.fleet.worker SOCKET PARENT`, started by the front only.

It inherits one end of a socket pair as a file descriptor, loads one engine, and answers requests until it is told to
stop. When the socket closes it ends at once, whatever it does: without its front it is of no use to anybody.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from openjev_server.admission import Admission, Overloaded
from openjev_server.checkpoint import CannotLoad, load_checkpoint
from openjev_server.engine.protocol import Engine, EngineError, EngineResult
from openjev_server.fleet.codec import decode_json, decode_request, encode_error, encode_info, encode_result
from openjev_server.fleet.connection import Connection
from openjev_server.fleet.frames import Frame, FrameKind, MalformedFrame
from openjev_server.settings import Settings

__all__ = ["Loader", "engine_of_settings", "main"]

logger = logging.getLogger(__name__)

Loader = Callable[[Mapping[str, Any], Callable[[str], None]], Engine]
"""From options (what JSON can hold) and a callback for the names of loaded tensors to an engine. Raises CannotLoad."""

WARM_POLL_S = 0.02
STOP_TIMEOUT_S = 2.0
"""What a stopping engine gives to a pass that still runs."""
PR_SET_PDEATHSIG = 1


def engine_of_settings(options: Mapping[str, Any], progress: Callable[[str], None]) -> Engine:
    """The loader of a server: `directory` and `settings`."""
    return load_checkpoint(Path(options["directory"]), Settings(**options["settings"]), progress)


class Worker(Connection):
    """The engine's end of the socket. Sends exactly one answer to every request, also to a cancelled one."""

    def __init__(self) -> None:
        super().__init__()
        self._admission: Admission | None = None
        self._answering: dict[int, asyncio.Task[EngineResult]] = {}
        self._background: set[asyncio.Task[None]] = set()

    def received(self, frame: Frame) -> None:
        match frame.kind:
            case FrameKind.REQUEST if self._admission is not None:
                self._submit(self._admission, frame)
            case FrameKind.CANCEL:
                if frame.number in self._answering:
                    self._answering[frame.number].cancel()
            case FrameKind.SETUP if self._admission is None:
                self._keep(self._load(decode_json(frame.payload)))
            case FrameKind.STOP:
                self._keep(self._stop())
            case unexpected:
                raise MalformedFrame(f"an unexpected frame: {unexpected.name}")

    def connection_lost(self, _error: Exception | None) -> None:
        end()

    def _submit(self, admission: Admission, frame: Frame) -> None:
        task = asyncio.ensure_future(admission.submit(decode_request(frame.payload)))
        self._answering[frame.number] = task
        task.add_done_callback(lambda done: self._answer(frame.number, done))

    def _answer(self, number: int, done: asyncio.Task[EngineResult]) -> None:
        del self._answering[number]
        try:
            self.send(FrameKind.RESULT, number, encode_result(done.result()))
        except (asyncio.CancelledError, Overloaded):
            self.send(FrameKind.CANCELLED, number)
        except EngineError as error:
            self.send(FrameKind.ERROR, number, encode_error(error))
        except Exception as error:
            logger.exception("A request failed beside the engine")
            failed = EngineError(f"{type(error).__name__} in the engine process")
            self.send(FrameKind.ERROR, number, encode_error(failed))

    async def _load(self, setup: Mapping[str, Any]) -> None:
        loop = asyncio.get_running_loop()

        def progress(name: str) -> None:
            loop.call_soon_threadsafe(self.send, FrameKind.PROGRESS, 0, name.encode())

        def load() -> Engine:
            module, _, name = setup["loader"].partition(":")
            loader: Loader = getattr(import_module(module), name)
            return loader(setup["options"], progress)

        try:
            # In a thread, so that the end of the front is noticed meanwhile.
            engine = await asyncio.to_thread(load)
        except CannotLoad as error:
            self.send(FrameKind.FAILED, 0, str(error).encode())
            return
        except Exception as error:
            logger.exception("The engine cannot be loaded")
            self.send(FrameKind.FAILED, 0, f"Cannot load the engine: {type(error).__name__}: {error}".encode())
            return
        # The front bounds what waits.
        admission = Admission(engine, max_queued=sys.maxsize, token_budget=setup["token_budget"])
        admission.start()
        self._admission = admission
        self.send(FrameKind.LOADED, 0, encode_info(engine.info))
        while not admission.ready:
            await asyncio.sleep(WARM_POLL_S)
        self.send(FrameKind.WARM)

    async def _stop(self) -> None:
        if self._admission is not None:
            await self._admission.drain(STOP_TIMEOUT_S)
            await asyncio.gather(*self._answering.values(), return_exceptions=True)
        # Sends what is still to be sent first.
        self.close()

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def end() -> NoReturn:
    """Ends this process now, and those that libraries started in its process group."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def die_with(parent: int) -> None:
    """Asks Linux to end this process with its parent; elsewhere the closing socket has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        end()


async def serve(connection: socket.socket) -> NoReturn:
    """Answers until the connection is lost, which ends the process."""
    await asyncio.get_running_loop().create_unix_connection(Worker, sock=connection)
    while True:
        await asyncio.sleep(3600)


def main(descriptor: int, parent: int) -> NoReturn:
    """Serves the socket of this file descriptor for the process `parent`."""
    # Ctrl-C and a service manager's SIGTERM reach all processes; the front alone decides, and tells through the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with(parent)
    os.set_inheritable(descriptor, False)
    asyncio.run(serve(socket.socket(fileno=descriptor)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
