"""Where a compiled request goes: the queue of an engine in this process, or the processes of a fleet."""

from __future__ import annotations

from typing import Protocol

from openjev_server.engine.protocol import EngineRequest, EngineResult

__all__ = ["Dispatcher"]


class Dispatcher(Protocol):
    """What `Admission` and `Fleet` have in common. Used from one event loop."""

    @property
    def ready(self) -> bool:
        """Whether requests are accepted and will not wait for a warm-up."""
        ...

    @property
    def queued(self) -> int:
        """How many requests wait."""
        ...

    def start(self) -> None:
        """Makes ready for requests; once started, does nothing."""
        ...

    async def submit(self, request: EngineRequest) -> EngineResult:
        """Waits for the answer. Cancelling the wait withdraws the request.

        Raises:
            Overloaded: it will not be answered now; later it may.
            EngineError: it could not be evaluated.
        """
        ...

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests, finishes the accepted ones, and ends; False when the timeout came first."""
        ...
