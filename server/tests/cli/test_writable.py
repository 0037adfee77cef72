"""What a command will write is tried before its work, and leaves no trace."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from openjev_server.cli import calibrate, export, selftest
from openjev_server.doctor import examine
from openjev_server.settings import Settings
from openjev_server.writable import CannotWrite, check_directory, check_files
from typer.testing import CliRunner


def test_what_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new" / "file"
    old.write_text("kept")
    check_files(old, new, None)
    check_directory(tmp_path / "other" / "directory")
    assert old.read_text() == "kept"
    assert list(new.parent.iterdir()) == []
    assert list((tmp_path / "other" / "directory").iterdir()) == []
    os.mkfifo(tmp_path / "pipe")
    check_files(tmp_path / "pipe")  # opening it would wait for a reader


@pytest.mark.parametrize(
    ("name", "reason"), [("file/x", "Not a directory"), ("file/x/y", "Not a directory"), (".", "Is")]
)
def test_what_cannot_be_written_is_named(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotWrite, match=f"cannot write .*: {reason}"):
        check_files(tmp_path / name)
    if name != ".":
        with pytest.raises(CannotWrite, match=f"cannot write to .*: {reason}"):
            check_directory(tmp_path / name)


def test_commands_say_so_before_they_load_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("checkpoint.load_checkpoint", "engine.export.export"):
        monkeypatch.setattr(f"openjev_server.{name}", lambda *_, **__: pytest.fail("loaded"))
    (tmp_path / "file").touch()
    there = str(tmp_path / "file" / "x")
    row = {"type": "noul", "state": "It is late.", "instructions": "Is it late?", "gold": True}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    for app, words, status in (
        (selftest.app, ["selftest", "record", "--file", there], 1),
        (export.app, ["export", f"{there}/y"], 1),
        (calibrate.app, ["calibrate", "--data", str(tmp_path / "rows.jsonl"), "--out", there], 2),
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == status, done.output
        assert isinstance(done.exception, SystemExit)
        assert done.output.startswith("openjev: cannot write")
        assert done.output.count("\n") == 1


def test_a_reference_that_cannot_be_written_is_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Path) -> None:
        raise CannotWrite("cannot write self_check.json: Read-only file system")

    monkeypatch.setattr("openjev_server.doctor.check_files", refused)
    monkeypatch.setattr("openjev_server.doctor.open_engine", lambda *_: pytest.fail("loaded"))
    report = examine(Settings(), flags=frozenset(), progress=None, record_reference=True)
    assert report.broken
    assert any("Read-only" in finding.text for finding in report.findings)
