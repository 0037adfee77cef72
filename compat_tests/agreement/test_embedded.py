"""The embedded checkpoint against Jev's recorded answers, and a gate against doing worse than it did."""

from __future__ import annotations

import json

from claims import RESULTS, ROOT, lookup
from live_server import LiveServer
from openjev_compat.cli import app
from typer.testing import CliRunner

REPORTS = ROOT / "reports" / "agreement"  # kept by CI
# Other processors and threads round differently; a question at the edge may fall to the other side.
ALLOWANCE = 2


def test_the_embedded_checkpoint_agrees_no_less_than_it_did(server: LiveServer) -> None:
    arguments = ["agree", "--url", server.url, "--fixtures", str(ROOT / "fixtures" / "jev")]
    options = ["--concurrency", "2", "--timeout", "120", "--names", "openjev-nano", "Jev", "--out", str(REPORTS)]
    result = CliRunner().invoke(app, [*arguments, *options])
    assert result.exit_code == 0, result.output
    assert (REPORTS / "report.html").exists()
    overall = json.loads((REPORTS / "report.json").read_text(encoding="utf-8"))["overall"]["estimates"]
    committed = json.loads((ROOT / RESULTS / "embedded.json").read_text(encoding="utf-8"))["overall"]["estimates"]
    validity = lookup(overall, ["validity"])
    assert (validity["hits"], validity["n"]) == (212, 212)
    now, before = lookup(overall, ["agreement"]), lookup(committed, ["agreement"])
    assert now["n"] == before["n"] == 192
    assert now["hits"] >= before["hits"] - ALLOWANCE, "the embedded checkpoint lost agreement with Jev"
