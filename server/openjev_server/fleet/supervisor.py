"""The front of the engine processes: keeps them running, gives every request to one, and loses none if one dies."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from openjev_server.admission import Overloaded
from openjev_server.engine.protocol import EngineError, EngineInfo, EngineRequest, EngineResult
from openjev_server.fleet.fatal import FatalRequests
from openjev_server.fleet.frames import MalformedFrame
from openjev_server.fleet.process import EngineProcess, EngineSpec, ProcessEnded
from openjev_server.fleet.routing import Ancestry, choose
from openjev_server.fleet.seat import Job, Seat

__all__ = ["EngineLost", "Fleet", "FleetLimits"]

logger = logging.getLogger(__name__)

TRIES = 2
"""Engines that may die with a request before it is given up."""
HOPELESS_STARTS = 2
"""Once every engine has failed to start so often in a row, requests are refused instead of waiting for one."""
STOP_TIMEOUT_S = 3.0
"""What a process gets to end after its last request, or with a pass that nobody waits for any more."""

Progress = Callable[[str], None]


class EngineLost(Overloaded):
    """Two engine processes in turn ended while they had this request, or lately one like it."""


@dataclass(frozen=True, slots=True)
class FleetLimits:
    max_queued: int
    """Requests that may wait, without those that the engines have."""
    window: int
    """Requests that an engine has at a time."""
    slack_tokens: int
    """Outstanding tokens up to which an engine counts as idle for routing."""
    restart_delay_s: float
    """Wait before a dead engine is started again; doubled with each death in a row."""
    restart_delay_max_s: float
    """The longest such wait; an engine that lives longer than this starts counting anew."""


class Fleet:
    """Several engines that look like one queue; a `Dispatcher`.

    Start it within the event loop that uses it, await `loaded`, and `drain` it in the end: no process outlives that,
    nor the end of this process.
    """

    def __init__(self, specs: Sequence[EngineSpec], limits: FleetLimits, progress: Progress | None = None) -> None:
        """`progress` is called with the names of the tensors that the first engine loads."""
        self._limits = limits
        self._members = [
            _Member(spec, Seat(number, limits.window), None if number else progress)
            for number, spec in enumerate(specs)
        ]
        self._ancestry = Ancestry()
        self._fatal = FatalRequests()
        self._jobs: dict[Job, _Member | None] = {}
        """Every request that is not answered, and who has it; None while there is no engine."""
        self._all_were_warm = False
        self._closing = False

    @property
    def ready(self) -> bool:
        """Whether one engine is warm; before all of them were so for the first time, whether all are."""
        return self._all_were_warm and not self._closing and any(member.warm for member in self._members)

    @property
    def queued(self) -> int:
        """Requests that wait in this process."""
        homeless = sum(member is None for member in self._jobs.values())
        return homeless + sum(member.seat.waiting for member in self._members)

    @property
    def processes(self) -> list[int]:
        """Ids of the processes that run."""
        return [member.process.pid for member in self._members if member.process and member.process.pid]

    def start(self) -> None:
        """Starts the processes, in the running event loop."""
        for member in self._members:
            if member.keeper is None:
                member.first_info = asyncio.get_running_loop().create_future()
                member.keeper = asyncio.ensure_future(self._keep(member, member.first_info))

    async def loaded(self) -> EngineInfo:
        """Waits until every engine is loaded, and returns what the first one is; the others differ in device only.

        Raises:
            ProcessEnded: an engine cannot be loaded, or is not the same as the first.
        """
        infos = await asyncio.gather(*(member.first_info for member in self._members if member.first_info))
        for info, member in zip(infos, self._members, strict=True):
            if replace(info, device="") != replace(infos[0], device=""):
                raise ProcessEnded(f"{member.spec.name} is not the same engine as the first: {info}, {infos[0]}")
        return infos[0]

    async def submit(self, request: EngineRequest) -> EngineResult:
        """Waits for an engine's answer; cancelling the wait withdraws the request, from the engine too.

        Raises:
            Overloaded: too many wait, no engine can be started, or the server is stopping; EngineLost: engines died.
            EngineError: this request could not be evaluated.
        """
        if self._closing:
            raise Overloaded("server is stopping")
        if self.queued >= self._limits.max_queued:
            raise Overloaded("too many requests are waiting")
        if request in self._fatal:
            raise EngineLost("two engines ended while they had a request like this")
        job = Job(request, self._ancestry.origin(request.state), asyncio.get_running_loop().create_future())
        self._jobs[job] = None
        try:
            self._place(job)
            return await job.future
        except asyncio.CancelledError:
            self._withdraw(job)
            raise
        finally:
            del self._jobs[job]

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new requests, finishes the accepted ones, and ends all processes.

        Returns False when the timeout came first: what still waited then fails as overloaded.
        """
        self._closing = True
        if self._jobs:
            await asyncio.wait([job.future for job in self._jobs], timeout=timeout_s)
        abandoned = [job for job in self._jobs if not job.future.done()]
        for job in abandoned:
            _settle(job, Overloaded("server is stopping"))
        keepers = [member.keeper for member in self._members if member.keeper is not None]
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)
        return not abandoned

    def _place(self, job: Job) -> None:
        """Gives the job to an engine; to one that is still warming up only if there is no other."""
        if job.future.done():
            return
        there = [m for m in self._members if m.warm] or [m for m in self._members if m.there]
        if there:
            loads = {member.seat.number: member.seat.tokens for member in there}
            number = choose(job.key, job.tokens, loads, slack=self._limits.slack_tokens)
            self._jobs[job] = member = self._members[number]
            member.seat.add(job)
            self._feed(member)
            return
        self._jobs[job] = None
        if all(member.failed_starts >= HOPELESS_STARTS for member in self._members):
            _settle(job, Overloaded("no engine can be started"))

    def _place_waiting(self) -> None:
        """Places anew what no engine has: the engines that are there have changed."""
        waiting = [job for job, member in self._jobs.items() if member is None]
        for member in self._members:
            waiting += member.seat.take_waiting()
        for job in waiting:
            self._place(job)

    def _feed(self, member: _Member) -> None:
        if member.process is None or not member.there:
            return
        for number, job in member.seat.next():
            try:
                member.process.request(number, job.request)
            except MalformedFrame as error:
                member.seat.answered(number)
                _settle(job, EngineError(f"the request cannot be sent to an engine: {error}"))

    def _withdraw(self, job: Job) -> None:
        member = self._jobs[job]
        number = member.seat.withdraw(job) if member else None
        if number is not None and member and member.process:
            member.process.cancel(number)

    def _answer(self, member: _Member, number: int, outcome: EngineResult | EngineError | None) -> None:
        job = member.seat.answered(number)
        if job is not None:
            if isinstance(outcome, EngineResult):
                outcome = replace(outcome, queue_ms=outcome.queue_ms + 1000 * (job.sent - job.submitted))
            _settle(job, outcome or Overloaded("the engine is stopping"))
        self._feed(member)

    async def _keep(self, member: _Member, first_info: asyncio.Future[EngineInfo]) -> None:
        """Runs one process after the other; only one, if that cannot be loaded."""
        while True:
            try:
                reason = await self._live(member, first_info)
            finally:
                if not first_info.done():
                    first_info.set_exception(ProcessEnded(f"{member.spec.name} was stopped before it was loaded"))
            if first_info.exception():
                return
            delay = min(self._limits.restart_delay_s * 2 ** min(member.deaths, 32), self._limits.restart_delay_max_s)
            member.deaths += 1
            logger.error("%s; a new one starts in %.1f s", reason, delay)
            await asyncio.sleep(delay)

    async def _live(self, member: _Member, first_info: asyncio.Future[EngineInfo]) -> str:
        """One process from its start to its end. Returns why it ended."""
        process = EngineProcess(member.spec, partial(self._answer, member), member.progress)
        member.process = process
        reason = ""
        admitted = 0.0
        try:
            await process.start()
            info = await process.loaded
            if not first_info.done():
                first_info.set_result(info)
            elif info != first_info.result():
                raise ProcessEnded(f"{member.spec.name} was {first_info.result()}, and is now {info}")
            admitted = time.monotonic()
            member.admitted = True
            member.failed_starts = 0
            self._place_waiting()
            await process.warm
            self._all_were_warm = self._all_were_warm or all(other.warm for other in self._members)
            self._place_waiting()
            await process.gone.wait()
        except (OSError, ProcessEnded) as error:
            reason = str(error)
        except Exception:
            logger.exception("The front failed with %s", member.spec.name)
        finally:
            if not member.admitted:
                member.failed_starts += 1
            elif time.monotonic() - admitted > self._limits.restart_delay_max_s:
                member.deaths = 0
            member.admitted = False
            self._bury(member)
            status = await process.stop(STOP_TIMEOUT_S)
            member.process = None
        reason = reason or f"{member.spec.name} ended with {_named(status)}"
        if not first_info.done():
            first_info.set_exception(ProcessEnded(reason))
        return reason

    def _bury(self, member: _Member) -> None:
        """Saves the requests of an engine that is there no more."""
        for job in member.seat.take_unanswered():
            if job.future.done():
                continue
            job.deaths += 1
            if job.deaths < TRIES:
                self._jobs[job] = None
            else:
                self._fatal.add(job.request)
                logger.error("A request of %d tokens is given up: two engines ended with it", job.tokens)
                _settle(job, EngineLost("two engines ended while they had this request"))
        self._place_waiting()


@dataclass(slots=True, eq=False)
class _Member:
    """One engine's place in the fleet."""

    spec: EngineSpec
    seat: Seat
    progress: Progress | None
    process: EngineProcess | None = None
    keeper: asyncio.Task[None] | None = None
    first_info: asyncio.Future[EngineInfo] | None = None
    admitted: bool = False
    """Whether its process is loaded, and is the engine that it should be."""
    deaths: int = 0
    """Processes in a row that did not live long."""
    failed_starts: int = 0
    """Processes in a row that ended before they were admitted."""

    @property
    def there(self) -> bool:
        return self.admitted and self.process is not None and self.process.up

    @property
    def warm(self) -> bool:
        return self.there and self.process is not None and self.process.is_warm


def _named(status: int | None) -> str:
    return signal.Signals(-status).name if status is not None and status < 0 else f"status {status}"


def _settle(job: Job, outcome: EngineResult | Exception) -> None:
    if job.future.done():
        return
    if isinstance(outcome, Exception):
        job.future.set_exception(outcome)
    else:
        job.future.set_result(outcome)
