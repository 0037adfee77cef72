"""What a server says about its calibration, what it refuses, and `calibrate` against a running one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from app_support import BODY, CHOICE, NOUL, Running, Serve
from openjev_server.app import create_app
from openjev_server.bundle import ModelBundle
from openjev_server.calibration import CalibrationError
from openjev_server.cli import main
from openjev_server.engine.fake import FAKE_INFO, FakeEngine
from openjev_server.settings import Settings


def write_calibration(path: Path, bundle: ModelBundle, *, weights: str = FAKE_INFO.weights_hash) -> str:
    """A file for the fake engine that calibrates yes/no at two steps, far enough to see it."""
    file = {
        "template": bundle.template.id,
        "template_hash": bundle.template.hash,
        "weights_hash": weights,
        "entries": [
            {
                "layout": "isolated",
                "steps": 2,
                "scalings": {"noul": {"method": "platt", "slope": 0.05, "bias": 5.0}},
                "fitted_on": "a test",
            }
        ],
    }
    path.write_text(json.dumps(file))
    return str(path)


def test_a_named_calibration_is_applied_listed_and_can_be_turned_off(
    serve: Serve, bundle: ModelBundle, tmp_path: Path
) -> None:
    nouls = {**BODY, "questions": {"a": NOUL, "b": {**NOUL, "instructions": "Is it late?"}}}
    with serve(calibration=write_calibration(tmp_path / "c.json", bundle)) as running:
        plain, off, mixed, choice = (
            running.ask(nouls),
            running.ask(nouls, openjev_calibration="off"),
            running.ask(),
            running.ask({**BODY, "questions": {"team": CHOICE}}),
        )
        listed = running.client.get("/v1/models").json()["calibration"]
        refused = running.ask(openjev_calibration="perhaps")
    assert all(answer["noul"] > 0.9 for answer in plain.json()["answers"].values()), "the bias moves every answer"
    assert any(answer["noul"] < 0.5 for answer in off.json()["answers"].values())
    mark = plain.headers["x-openjev-calibration"]
    assert off.headers["x-openjev-calibration"] == choice.headers["x-openjev-calibration"] == "none"
    assert mixed.headers["x-openjev-calibration"] == f"{mark}:noul"
    assert mixed.headers["x-openjev-fingerprint"].endswith(f"/{mark}:noul")
    assert listed["status"] == "fitted"
    assert listed["entries"] == [
        {"layout": "isolated", "steps": 2, "types": ["noul"], "hash": mark, "fitted_on": "a test"}
    ]
    assert refused.status_code == 400
    assert "OpenJev-Calibration" in refused.text


def test_a_calibration_for_other_weights_is_refused_at_the_start(bundle: ModelBundle, tmp_path: Path) -> None:
    settings = Settings(calibration=write_calibration(tmp_path / "c.json", bundle, weights="0" * 12))
    with pytest.raises(CalibrationError, match=f"weights {'0' * 12}.*{FAKE_INFO.weights_hash}"):
        create_app(FakeEngine(), settings, bundle)


def test_a_checkpoint_of_another_file_says_why_it_is_uncalibrated(plain: Running) -> None:
    listed = plain.client.get("/v1/models").json()["calibration"]
    assert listed["status"] == "none"
    assert FAKE_INFO.weights_hash in listed["reason"]


def test_prior_correction_learns_for_each_key_by_itself(serve: Serve) -> None:
    body = {**BODY, "questions": {"urgent": NOUL}}

    def ask(running: Running, key: str, state: str, **headers: str) -> httpx.Response:
        return running.ask({**body, "state": state}, authorization=f"Bearer {key}", **headers)

    def noul(response: httpx.Response) -> float:
        return float(response.json()["answers"]["urgent"]["noul"])

    states = [f"state {number}" for number in range(12)]
    with serve(decimals=6, api_keys="a=1,b=2") as running:
        untouched = {state: noul(ask(running, "1", state)) for state in states}
        assert untouched == {state: noul(ask(running, "1", state)) for state in states}, "off: nothing is learned"
    high = [state for state in states if untouched[state] > 0.5]
    with serve(decimals=6, api_keys="a=1,b=2", prior_correction=True) as running:
        first = ask(running, "1", high[0])
        for _ in range(20):
            ask(running, "1", high[0])
        learned, other = ask(running, "1", states[0]), ask(running, "2", high[0])
        off = ask(running, "1", states[0], openjev_calibration="off")
    assert first.headers["x-openjev-calibration"] == "none+prior"
    assert noul(learned) > untouched[states[0]]
    assert noul(other) == noul(first), "the other key's memory is empty"
    assert noul(off) == untouched[states[0]]
    assert off.headers["x-openjev-calibration"] == "none"


def test_calibrate_asks_a_server_and_its_file_fits_that_server(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "rows.jsonl", tmp_path / "c.json"
    rows = [
        {**NOUL, "state": f"case {number}", "gold": number % 4 == 0, "task": "ab"[number % 2]} for number in range(60)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with serve() as running, pytest.raises(SystemExit) as done:
        main(["calibrate", "--data", str(data), "--out", str(out), "--url", running.url, "--method", "platt"])
    printed = capsys.readouterr().out
    assert done.value.code == 0, printed
    assert re.search(r"noul: platt .*fitted on 48 rows, measured on 12 others", printed)
    assert re.search(r"ECE +\d\.\d{3} \[.*\] -> \d\.\d{3} \[", printed)
    assert "map of the other tasks" in printed
    with serve(calibration=str(out)) as running:
        answer = running.ask({**BODY, "questions": {"urgent": NOUL}})
    assert re.fullmatch(r"[0-9a-f]{12}", answer.headers["x-openjev-calibration"])
