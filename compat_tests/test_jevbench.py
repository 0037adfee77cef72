"""jevbench 0.1.0: the other questions of a request change nothing, on its 360 batch-independence requests.

Its exit code says nothing, so the gate reads its report.
"""

import json
from pathlib import Path

import pytest
from conftest import RunTool
from live_server import LiveServer


@pytest.mark.longest
@pytest.mark.timeout(2400)
def test_batch_isolation_is_exact(tool: RunTool, server: LiveServer, tmp_path: Path) -> None:
    report = tmp_path / "bat.json"
    words = ["eval", "--url", f"{server.url}/v1/systemone", "--model", "jev-latest", "--dimensions", "BAT"]
    # Four at a time, so that the server packs different requests into one pass: isolation must hold there too.
    words += ["--concurrency", "4"]
    done = tool(".venvs/jevbench-0.1.0/bin/jevbench", *words, "--no-cache", "--out", str(report))
    assert report.exists(), done.stdout + done.stderr
    loaded = json.loads(report.read_text())
    assert loaded["result"]["errors"] == []
    scores = loaded["scores"]
    assert scores["incomplete"] == []
    assert scores["pillars"]["BAT"] == 1.0
    assert scores["groups"]["BAT.isolation"] == 1.0
    assert all(check["score"] == 1.0 for check in scores["checks"].values())
