"""`openjev serve` in front of engine processes, over a real socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from app_support import BODY
from openjev_server.cli.local import ask_here
from openjev_server.settings import Settings

SERVE = [sys.executable, "-m", "openjev_server.cli", "serve"]
FAKE = """
import json, os, sys
from openjev_server import serving
from openjev_server.fleet.process import EngineSpec
from openjev_server.http import protocol
from openjev_server.settings import Settings

protocol.PROBE_S = 0.05
options = json.loads(os.environ["TEST_OPTIONS"])
serving.engine_specs = lambda _settings, devices, _directory: [
    EngineSpec(f"engine {number}", options, 100, "fleet_engines:scripted") for number in range(len(devices))
]
try:
    sys.exit(serving.serve(Settings()))
except serving.CannotServe as error:
    sys.exit(str(error))
"""


class Served:
    """A server in a process of its own, and its engines in theirs."""

    def __init__(self, command: list[str], **settings: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENJEV_")}
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        defaults = {"OPENJEV_PORT": "0", "OPENJEV_ENGINES": "2", "OPENJEV_DEVICE": "cpu", "OPENJEV_THREADS": "1"}
        self.process = subprocess.Popen(
            command, env=kept | paths | defaults | settings, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.watchdog = threading.Timer(120, self.process.kill)
        self.client = httpx.Client(timeout=60, trust_env=False)
        self.lines: list[str] = []
        self.url = ""
        self.engines: list[int] = []

    def __enter__(self) -> Served:
        self.watchdog.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.watchdog.cancel()
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        wait_for(lambda: not any(map(runs, self.engines)))

    def read_until(self, word: str) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if word in line:
                return line
        raise AssertionError("the server ended: " + "".join(self.lines))

    def wait_ready(self) -> Served:
        self.url = self.read_until("serves on").split()[-1]
        self.read_until("ready")
        self.engines = children(self.process.pid)
        assert len(self.engines) == 2
        return self

    def ask(self) -> httpx.Response:
        return self.client.post(f"{self.url}/v1/systemone", json=BODY)

    def end(self) -> tuple[int, str]:
        assert self.process.stderr is not None
        return self.process.wait(60), self.process.stderr.read()


def fake(drain_timeout_s: float = 30, **options: object) -> Served:
    settings = {
        "TEST_OPTIONS": json.dumps(options),
        "OPENJEV_RESTART_DELAY_S": "0.05",
        "OPENJEV_DRAIN_TIMEOUT_S": str(drain_timeout_s),
    }
    return Served([sys.executable, "-c", FAKE], **settings)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_engines_answer_as_one_in_this_process() -> None:
    here = ask_here(Settings(device="cpu", threads=1), BODY["state"], BODY["questions"], None)
    with Served(SERVE) as served:
        served.wait_ready()
        with ThreadPoolExecutor(4) as pool:
            responses = list(pool.map(lambda _: served.ask(), range(8)))
        assert [response.json()["answers"] for response in responses] == [here.body["answers"]] * 8
        assert {response.headers["x-openjev-fingerprint"] for response in responses} == {here.fingerprint}
        assert "model;dur=" in responses[0].headers["server-timing"]
        served.process.send_signal(signal.SIGTERM)
        assert served.end() == (0, "")


def test_a_checkpoint_that_does_not_load_is_one_sentence(tmp_path: Path) -> None:
    directory = tmp_path / "hollow"
    directory.mkdir()
    embedded = Path(__file__).parents[2] / "openjev_server" / "models" / "nano"
    for name in ("config.json", "tokenizer.json"):
        (directory / name).write_bytes((embedded / name).read_bytes())
    with Served(SERVE, OPENJEV_MODEL=str(directory)) as served:
        status, said = served.end()
        assert status == 1
        reason = said.splitlines()[-1]
        assert reason.startswith(f"openjev: Cannot load {directory}: no safetensors weights")
        assert "Traceback" not in said


def test_a_killed_engine_costs_no_answer_and_comes_back() -> None:
    with fake(delay_s=0.02) as served:
        served.wait_ready()
        with ThreadPoolExecutor(32) as pool:
            answers = [pool.submit(served.ask) for _ in range(200)]
            wait_for(lambda: sum(answer.done() for answer in answers) > 20)
            os.kill(served.engines[0], signal.SIGKILL)
            responses = [answer.result() for answer in answers]
        assert [response.status_code for response in responses] == [200] * 200
        assert len({response.text for response in responses}) == 1
        wait_for(lambda: len(children(served.process.pid)) == 2)
        assert httpx.get(f"{served.url}/ready").status_code == 200
        assert "ended with SIGKILL; a new one starts in" in served.read_until("engine 0")
        served.engines += children(served.process.pid)


@pytest.mark.parametrize(
    ("number", "whole_group"), [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, True)]
)
def test_a_signal_drains_and_ends_without_a_word(tmp_path: Path, number: signal.Signals, whole_group: bool) -> None:
    """Ctrl-C goes to the terminal's whole process group; a service manager's SIGTERM to every process."""
    hold = tmp_path / "hold"
    hold.touch()
    with fake(hold=str(hold), log=str(tmp_path / "log")) as served, ThreadPoolExecutor(4) as pool:
        served.wait_ready()
        waiting = [pool.submit(served.ask) for _ in range(4)]
        wait_for((tmp_path / "log").exists)
        for _ in range(4):
            assert httpx.get(f"{served.url}/ready").status_code == 200
        time.sleep(0.1)
        if whole_group:
            os.killpg(served.process.pid, number)
            for pid in served.engines:
                os.kill(pid, number)
        else:
            served.process.send_signal(number)
        time.sleep(0.1)
        hold.unlink()
        assert [answer.result().status_code for answer in waiting] == [200] * 4
        assert served.end() == (0, "")
        assert not any(map(runs, served.engines))


def test_an_engine_that_does_not_finish_is_not_waited_for(tmp_path: Path) -> None:
    hold, log = tmp_path / "hold", tmp_path / "log"
    hold.touch()
    with fake(0.3, hold=str(hold), log=str(log)) as served, ThreadPoolExecutor() as pool:
        served.wait_ready()
        waiting = pool.submit(served.ask)
        wait_for(log.exists)
        served.process.send_signal(signal.SIGTERM)
        assert waiting.result().status_code == 503
        status, said = served.end()
        assert status == 0
        assert said == "OpenJev stops without answering 1 request\n"
        assert not any(map(runs, served.engines))


def test_ctrl_c_while_engines_load_is_quiet() -> None:
    with fake(slow_s=60) as served:
        wait_for(lambda: len(children(served.process.pid)) == 2)
        served.engines = children(served.process.pid)
        os.killpg(served.process.pid, signal.SIGINT)
        status, said = served.end()
        assert status == 128 + signal.SIGINT
        assert "Traceback" not in said


def test_a_client_that_leaves_withdraws_its_request_from_the_engine(tmp_path: Path) -> None:
    hold, log = tmp_path / "hold", tmp_path / "log"
    hold.touch()
    with fake(hold=str(hold), log=str(log)) as served, ThreadPoolExecutor() as pool:
        served.wait_ready()
        first = pool.submit(served.ask)
        wait_for(log.exists)
        # The same state goes to the same engine, whose thread is held by the first request.
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{served.url}/v1/systemone", json=BODY, timeout=0.3)
        time.sleep(1)
        hold.unlink()
        assert first.result().status_code == 200
        assert len(log.read_text().splitlines()) == 1
