"""Two engine processes, some of which are killed: nothing is lost, nothing answered twice, nobody left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleet_engines import NOISE, POISON, request_of
from openjev_server.admission import Overloaded
from openjev_server.engine.fake import FAKE_INFO, FakeEngine
from openjev_server.engine.protocol import EngineInfo, EngineResult, NonFiniteLogits
from openjev_server.fleet.process import EngineSpec, ProcessEnded
from openjev_server.fleet.supervisor import EngineLost, Fleet, FleetLimits

LIMITS = {
    "max_queued": 10_000,
    "window": 16,
    "slack_tokens": 30,
    "restart_delay_s": 0.05,
    "restart_delay_max_s": 0.2,
}


def spec(number: int = 0, **options: Any) -> EngineSpec:
    return EngineSpec(f"engine {number}", options, token_budget=40, loader="fleet_engines:scripted")


def fleet_of(*specs: EngineSpec, **limits: Any) -> Fleet:
    return Fleet(specs, FleetLimits(**{**LIMITS, **limits}))


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def running(*specs: EngineSpec, **limits: Any) -> AsyncIterator[Fleet]:
    """A warm fleet of two engines that leaves nothing behind."""
    fleet = fleet_of(*(specs or (spec(0), spec(1))), **limits)
    fleet.start()
    seen: set[int] = set()
    try:
        await fleet.loaded()
        await until(lambda: fleet.ready)
        seen.update(fleet.processes)
        yield fleet
        seen.update(fleet.processes)
    finally:
        await fleet.drain(5)
        assert fleet.processes == []
        assert not any(is_there(pid) for pid in seen)
        assert not fleet._jobs
        assert all(member.seat.tokens == 0 and not member.seat.waiting for member in fleet._members)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def expected(name: int) -> float:
    (result,) = FakeEngine().run([request_of(name)])
    assert isinstance(result, EngineResult)
    return float(result.blocks[0].log_probs[0, 0, 0])


def value(result: EngineResult) -> float:
    return float(result.blocks[0].log_probs[0, 0, 0])


def tried(log: Path) -> Counter[int]:
    """How often every request reached an engine."""
    return Counter(int(line.split()[1]) for line in log.read_text().splitlines())


async def ask_all(fleet: Fleet, names: range) -> list[asyncio.Task[EngineResult]]:
    return [asyncio.ensure_future(fleet.submit(request_of(name))) for name in names]


def test_answers_are_the_engine_s_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        async with running(spec(0, log=str(log)), spec(1, log=str(log))) as fleet:
            results = await asyncio.gather(*await ask_all(fleet, range(200)))
            assert [value(result) for result in results] == [expected(name) for name in range(200)]
            assert all(result.queue_ms >= 0 and result.model_ms >= 0 for result in results)
            assert set(tried(log).values()) == {1}
            assert len({line.split()[0] for line in log.read_text().splitlines()}) == 2

    run(scenario)


@pytest.mark.parametrize("victims", [1, 2])
def test_nothing_is_lost_when_engines_are_killed_under_load(tmp_path: Path, victims: int) -> None:
    """Those killed at once: a request that both had in turn would rightly fail."""

    async def scenario() -> None:
        log = tmp_path / "log"
        specs = [spec(number, log=str(log), delay_s=0.01) for number in range(2)]
        async with running(*specs) as fleet:
            tasks = await ask_all(fleet, range(400))
            await until(lambda: log.exists() and len(tried(log)) > 60)
            killed = fleet.processes[:victims]
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            results = await asyncio.gather(*tasks)
            assert [value(result) for result in results] == [expected(name) for name in range(400)]
            assert max(tried(log).values()) <= 2
            assert sum(count == 2 for count in tried(log).values()) <= 16 * victims
            await until(lambda: len(fleet.processes) == 2 and all(member.warm for member in fleet._members))
            assert not set(killed) & set(fleet.processes)
            again = await asyncio.gather(*await ask_all(fleet, range(40)))
            assert [value(result) for result in again] == [expected(name) for name in range(40)]
            pids = {int(line.split()[0]) for line in log.read_text().splitlines()[-40:]}
            assert pids == set(fleet.processes)

    run(scenario)


def test_a_request_that_kills_is_tried_twice_and_harms_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = tmp_path / "log"
        async with running(*(spec(number, log=str(log), delay_s=0.002) for number in range(2))) as fleet:
            tasks = await ask_all(fleet, range(120))
            poisons = [asyncio.ensure_future(fleet.submit(request_of(POISON))) for _ in range(3)]
            tasks += await ask_all(fleet, range(120, 240))
            results = await asyncio.gather(*tasks)
            assert [value(result) for result in results] == [expected(name) for name in range(240)]
            for poison in poisons:
                with pytest.raises(EngineLost):
                    await poison
            counts = tried(log)
            assert counts.pop(POISON) <= 6
            assert max(counts.values()) <= 2
            # Clients retry.
            await until(lambda: len(fleet.processes) == 2)
            alive = fleet.processes
            with pytest.raises(EngineLost):
                await fleet.submit(request_of(POISON))
            assert fleet.processes == alive
            assert value(await fleet.submit(request_of(1))) == expected(1)
            assert issubclass(EngineLost, Overloaded)

    run(scenario)


def test_one_engine_alone_comes_back_and_answers_what_it_had(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, hold = tmp_path / "log", tmp_path / "hold"
        hold.touch()
        async with running(spec(log=str(log), hold=str(hold))) as fleet:
            tasks = await ask_all(fleet, range(30))
            await until(log.exists)
            os.kill(fleet.processes[0], signal.SIGKILL)
            await until(lambda: not fleet.ready)
            tasks += await ask_all(fleet, range(30, 40))
            hold.unlink()
            results = await asyncio.gather(*tasks)
            assert [value(result) for result in results] == [expected(name) for name in range(40)]

    run(scenario)


def test_failures_of_the_engine_keep_their_kind_and_its_life() -> None:
    async def scenario() -> None:
        async with running() as fleet:
            before = fleet.processes
            with pytest.raises(NonFiniteLogits, match="noise"):
                await fleet.submit(request_of(NOISE))
            assert value(await fleet.submit(request_of(1))) == expected(1)
            assert fleet.processes == before

    run(scenario)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"missing": "/nowhere/model.bin"}, "Cannot load it: no model.bin"),
        ({"crash": True}, "engine 1 ended with SIGSEGV"),
        ({"broken": True}, "Cannot load the engine: ZeroDivisionError: a bug"),
        ({"info": {"weights_hash": "another"}}, "engine 1 is not the same engine as the first"),
    ],
)
def test_a_fleet_with_an_engine_that_does_not_load_does_not_start(options: dict[str, Any], reason: str) -> None:
    async def scenario() -> None:
        fleet = fleet_of(spec(0), spec(1, **options))
        fleet.start()
        with pytest.raises(ProcessEnded, match=reason):
            await fleet.loaded()
        seen = fleet.processes
        await fleet.drain(0)
        assert not any(is_there(pid) for pid in seen)

    run(scenario)


def test_engines_may_differ_in_their_device_alone() -> None:
    async def scenario() -> None:
        specs = [spec(number, info={"device": f"cuda:{number}"}) for number in range(2)]
        async with running(*specs) as fleet:
            assert await fleet.loaded() == EngineInfo(**{**_fields(FAKE_INFO), "device": "cuda:0"})

    run(scenario)


def _fields(info: EngineInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in EngineInfo.__dataclass_fields__}


def test_requests_are_refused_once_no_engine_can_be_started(tmp_path: Path) -> None:
    async def scenario() -> None:
        needed = tmp_path / "weights"
        needed.touch()
        async with running(spec(missing=str(needed)), restart_delay_max_s=0.1) as fleet:
            needed.unlink()
            os.kill(fleet.processes[0], signal.SIGKILL)
            await until(lambda: not fleet.ready)
            with pytest.raises(Overloaded, match="no engine can be started"):
                await fleet.submit(request_of(1))
            needed.touch()
            await until(lambda: fleet.ready)
            assert value(await fleet.submit(request_of(1))) == expected(1)

    run(scenario)


def test_an_engine_that_keeps_failing_is_started_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def delays() -> list[Any]:
        return [
            record.args[1] for record in caplog.records if isinstance(record.args, tuple) and "new one" in record.msg
        ]

    async def scenario() -> None:
        needed = tmp_path / "weights"
        needed.touch()
        async with running(spec(missing=str(needed)), restart_delay_s=0.01, restart_delay_max_s=0.03) as fleet:
            await asyncio.sleep(0.05)
            needed.unlink()
            os.kill(fleet.processes[0], signal.SIGKILL)
            await until(lambda: len(delays()) >= 4)
            assert delays()[:4] == [0.01, 0.02, 0.03, 0.03]

    run(scenario)


def test_the_queue_is_bounded_and_a_withdrawn_request_frees_its_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, hold = tmp_path / "log", tmp_path / "hold"
        hold.touch()
        async with running(spec(log=str(log), hold=str(hold)), max_queued=2, window=3) as fleet:
            tasks = await ask_all(fleet, range(5))
            await until(lambda: fleet.queued == 2)
            with pytest.raises(Overloaded, match="too many"):
                await fleet.submit(request_of(5))
            tasks[4].cancel()
            await until(lambda: fleet.queued == 1)
            replacement = asyncio.ensure_future(fleet.submit(request_of(6)))
            await until(lambda: fleet.queued == 2)
            hold.unlink()
            await asyncio.gather(*tasks[:4], replacement)
            assert set(tried(log)) == {0, 1, 2, 3, 6}

    run(scenario)


def test_cancelling_reaches_the_engine_s_queue(tmp_path: Path) -> None:
    async def scenario() -> None:
        log, hold = tmp_path / "log", tmp_path / "hold"
        hold.touch()
        async with running(spec(log=str(log), hold=str(hold))) as fleet:
            first = asyncio.ensure_future(fleet.submit(request_of(0)))
            await until(log.exists)
            waits, goes = await ask_all(fleet, range(1, 3))
            at_once = asyncio.ensure_future(fleet.submit(request_of(3)))
            await asyncio.sleep(0)
            at_once.cancel()
            await until(lambda: fleet._members[0].seat.tokens == 30)
            goes.cancel()
            await until(lambda: fleet._members[0].seat.tokens == 20)
            first.cancel()
            await until(lambda: fleet._members[0].seat.tokens == 10)
            hold.unlink()
            assert value(await waits) == expected(1)
            assert set(tried(log)) == {0, 1}
            assert value(await fleet.submit(request_of(4))) == expected(4)

    run(scenario)


def test_draining_finishes_what_was_accepted_and_refuses_the_rest(tmp_path: Path) -> None:
    async def scenario() -> None:
        hold = tmp_path / "hold"
        hold.touch()
        async with running(spec(hold=str(hold)), window=2) as fleet:
            tasks = await ask_all(fleet, range(6))
            await asyncio.sleep(0)
            draining = asyncio.ensure_future(fleet.drain(20))
            await until(lambda: not fleet.ready)
            with pytest.raises(Overloaded, match="stopping"):
                await fleet.submit(request_of(9))
            hold.unlink()
            assert await draining
            assert [value(task.result()) for task in tasks] == [expected(name) for name in range(6)]

    run(scenario)


def test_a_drain_that_times_out_fails_what_still_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openjev_server.fleet.supervisor.STOP_TIMEOUT_S", 0.1)

    async def scenario() -> None:
        hold = tmp_path / "hold"
        hold.touch()
        async with running(spec(hold=str(hold)), window=2) as fleet:
            tasks = await ask_all(fleet, range(4))
            await asyncio.sleep(0)
            assert not await fleet.drain(0.05)
            for task in tasks:
                with pytest.raises(Overloaded):
                    await task

    run(scenario)


def test_a_fleet_can_be_stopped_while_it_loads() -> None:
    async def scenario() -> None:
        fleet = fleet_of(spec(slow_s=60), spec(slow_s=60))
        fleet.start()
        await until(lambda: len(fleet.processes) == 2)
        seen = fleet.processes
        async with asyncio.timeout(20):
            await fleet.drain(0)
        assert not any(is_there(pid) for pid in seen)
        with pytest.raises(ProcessEnded, match="stopped before"):
            await fleet.loaded()

    run(scenario)


def test_progress_is_the_first_engine_s() -> None:
    async def scenario() -> None:
        names: list[str] = []
        fleet = Fleet([spec(0), spec(1)], FleetLimits(**LIMITS), names.append)
        fleet.start()
        await fleet.loaded()
        await fleet.drain(0)
        assert names == ["a.weight"]

    run(scenario)


FRONT = """
import asyncio
from test_fleet import running

async def scenario():
    async with running() as fleet:
        print(*fleet.processes, flush=True)
        await asyncio.sleep(60)

asyncio.run(scenario())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_engines_end_with_their_front(number: signal.Signals) -> None:
    path = os.pathsep.join([str(Path(__file__).parent), *(entry for entry in sys.path if entry)])
    front = subprocess.Popen(
        [sys.executable, "-c", FRONT], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert front.stdout is not None
    with front, front.stdout:
        pids = [int(pid) for pid in front.stdout.readline().split()]
        assert len(pids) == 2
        front.send_signal(number)
        front.wait()

    async def all_gone() -> None:
        await until(lambda: not any(is_there(pid) and not is_zombie(pid) for pid in pids))

    asyncio.run(all_gone())


def is_zombie(pid: int) -> bool:
    """Whether a process has ended and only its adoptive parent has not noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return False


def test_large_requests_and_answers_cross_in_pieces() -> None:
    async def scenario() -> None:
        async with running() as fleet:
            request = request_of(5, tokens=1_000_000)
            (result,) = FakeEngine().run([request])
            assert isinstance(result, EngineResult)
            answers = await asyncio.gather(*(fleet.submit(request) for _ in range(3)))
            for answer in answers:
                np.testing.assert_array_equal(answer.blocks[0].log_probs, result.blocks[0].log_probs)

    run(scenario)
