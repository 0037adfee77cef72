"""`serve`: loads the checkpoint, listens, and stops cleanly."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn, cast

import uvicorn
from starlette.applications import Starlette

from openjev_server.app import app_around, create_app
from openjev_server.bundle import ModelBundle, load_bundle, resolve_model
from openjev_server.calibration import CalibrationError, refuse_other_template
from openjev_server.checkpoint import CannotLoad, load_checkpoint
from openjev_server.fleet.plan import engine_devices, engine_specs, fleet_limits
from openjev_server.fleet.process import EngineSpec, ProcessEnded
from openjev_server.fleet.supervisor import Fleet
from openjev_server.http.protocol import ApiProtocol, ConnectionLimits
from openjev_server.settings import Settings, is_loopback

__all__ = ["CannotServe", "Server", "bind", "check_exposure", "serve", "serve_fleet", "server_for", "url_of"]

GRACE_S = 2.0
"""Seconds on top of the drain timeout: for refusals to be sent, and for the engine to finish its pass."""
BODY_GRACE_S = 1.0
"""Seconds that a stopping server gives to a body which is on its way."""
POLL_S = 0.05


class CannotServe(Exception):
    """The server does not start; the message is one sentence for the person who started it."""


def serve(settings: Settings, progress: Callable[[str], None] | None = None) -> int:
    """Serves until SIGTERM or SIGINT, and returns the process's exit status.

    Ends the process itself when the engine is still in a pass after the drain timeout.

    Args:
        settings: all of them.
        progress: called with the name of every tensor as it is loaded.

    Raises:
        CannotServe: unsafe settings, an address that cannot be bound, or a checkpoint that cannot be loaded, or a
            calibration that was fitted for another.
        ModelNotFound: the model's name leads to no checkpoint.
    """
    check_exposure(settings)
    try:
        with bind(settings.host, settings.port) as listener:
            directory = resolve_model(settings.model, revision=settings.model_revision)
            _say(f"OpenJev loads {settings.model} …")
            bundle = load_bundle(directory, template=settings.template)
            refuse_other_template(settings.calibration, bundle.template.id, bundle.template.hash)
            if devices := engine_devices(settings):
                specs = engine_specs(settings, devices, directory)
                with asyncio.Runner(loop_factory=uvicorn.Config("").get_loop_factory()) as runner:
                    return runner.run(serve_fleet(specs, settings, bundle, listener, progress))
            app = create_app(load_checkpoint(directory, settings, progress), settings, bundle)
            server = server_for(app, settings)
            server.run(sockets=[listener])
            status = 0 if server.started else 1
            if not app.state.drained:
                _leave(status)
            return status
    except (CannotLoad, CalibrationError) as error:
        raise CannotServe(str(error)) from error
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


async def serve_fleet(
    specs: Sequence[EngineSpec],
    settings: Settings,
    bundle: ModelBundle,
    listener: socket.socket,
    progress: Callable[[str], None] | None = None,
) -> int:
    """Serves with an engine process for each spec; see `serve`. No process is left when it returns or raises."""
    fleet = Fleet(specs, fleet_limits(settings), progress)
    try:
        fleet.start()
        info = await fleet.loaded()
        server = server_for(app_around(fleet, info, settings, bundle), settings)
        await server.serve(sockets=[listener])
        return 0 if server.started else 1
    except ProcessEnded as error:
        raise CannotServe(str(error)) from error
    finally:
        await fleet.drain(0)


def check_exposure(settings: Settings) -> None:
    """Refuses to offer an unauthenticated server to a network unless told so explicitly."""
    if is_loopback(settings.host) or settings.api_keys or settings.allow_unauthenticated:
        return
    raise CannotServe(
        f"Refusing to listen on {settings.host} without API keys: set OPENJEV_API_KEYS, "
        "or OPENJEV_ALLOW_UNAUTHENTICATED=1 if anyone who reaches this address may use it."
    )


def bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet: the port is taken before the slow loading, connections are not."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotServe(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CannotServe(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from error
    return listener


def url_of(listener: socket.socket) -> str:
    """The address to give to a client, without a trailing slash."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_for(app: Starlette, settings: Settings) -> Server:
    """uvicorn as these settings want it; `server.run(sockets=[listener])` serves until a signal or `should_exit`.

    Every connection has TCP_NODELAY (asyncio sets it on its own, uvloop too), so that headers and body, which uvicorn
    writes one after the other, do not wait for the client's delayed acknowledgement.
    """
    limits = ConnectionLimits(settings.max_header_bytes, settings.receive_timeout_s)
    return Server(
        uvicorn.Config(
            app,
            http=cast(Any, partial(ApiProtocol, limits=limits)),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            date_header=True,
            proxy_headers=False,
            timeout_keep_alive=settings.keep_alive_s,
        ),
        app,
        drain_timeout_s=settings.drain_timeout_s,
    )


class Server(uvicorn.Server):
    """uvicorn that says when it listens and when it is ready, refuses with an answer what it cannot finish, and returns
    instead of dying of the signal it handled."""

    def __init__(self, config: uvicorn.Config, app: Starlette, *, drain_timeout_s: float) -> None:
        super().__init__(config)
        self._app = app
        self._drain_timeout_s = drain_timeout_s
        self._announced = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening, and prints the address in a form that scripts can read."""
        await super().startup(sockets=sockets)
        if self.started and sockets:
            _say(f"OpenJev serves on {url_of(sockets[0])}")

    async def on_tick(self, counter: int) -> bool:
        """uvicorn's pulse, ten times a second."""
        if not self._announced and self._app.state.admission.ready:
            self._announced = True
            _say("OpenJev is ready")
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers what was accepted; what is not answered in time, or at a second Ctrl-C, gets a 503."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in self._connections():
            connection.shutdown()
        if not await self._finished(self._drain_timeout_s):
            unanswered = len(self.server_state.tasks)
            _say(f"OpenJev stops without answering {unanswered} request{'' if unanswered == 1 else 's'}")
            for connection in self._connections():
                connection.abort_if_answering()
            for task in list(self.server_state.tasks):
                task.cancel()
            self.force_exit = False
            if not await self._finished(GRACE_S):
                for connection in self._connections():
                    connection.transport.abort()
        # Nobody waits for the engine any more.
        self._app.state.drain_timeout_s = min(GRACE_S, self._drain_timeout_s)
        await self.lifespan.shutdown()

    async def _finished(self, timeout_s: float) -> bool:
        """Whether all connections ended in time, and nobody lost patience."""
        started = time.monotonic()
        while self.server_state.connections or self.server_state.tasks:
            waited = time.monotonic() - started
            if waited >= timeout_s or self.force_exit:
                return False
            if waited >= BODY_GRACE_S:
                for connection in self._connections():
                    connection.give_up_on_body()
            await asyncio.sleep(POLL_S)
        return True

    def _connections(self) -> list[ApiProtocol]:
        return cast(list[ApiProtocol], list(self.server_state.connections))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handles SIGINT and SIGTERM without raising them again afterwards: a graceful stop is a success."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        previous = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _leave(status: int) -> NoReturn:
    """Ends the process while a thread computes: the interpreter's own way out would take torch's thread down with it,
    which C++ answers with abort()."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
