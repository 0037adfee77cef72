"""The commands as a user types them: `openjev agree`, `record`, `import-cases`."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from agreement.stubs import ANSWERS, answer, body, served, until
from openjev_compat.cli import app
from openjev_compat.store import load_fixtures
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from typer.testing import CliRunner, Result

FIXTURES = Path(__file__).parents[2] / "fixtures"
LAB = ("--left", str(FIXTURES / "seed" / "every_lab.jsonl"), "--right", str(FIXTURES / "jev" / "every_lab.jsonl"))
VOICE = (*LAB, "--on", "every-lab/customer-voice", "--steps", "1")


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


async def _answer(request: Request) -> Response:
    content = await request.body()
    answered = answer(httpx.Request("POST", str(request.url), content=content))
    return Response(answered.content, media_type="application/json")


STUB = Starlette(routes=[Route("/v1/systemone", _answer, methods=["POST"])])


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("--fail-under", "0.95"), 0, "pass: agreement 138/144"),
        (("--fail-under", "0.96"), 1, "FAIL: agreement 138/144"),
        (("--fail-under", "0.95", "--strict"), 1, "0.9121 (the interval's lower end) < 0.95"),
        (("--fail-under", "0.91", "--strict"), 0, "pass"),
        (("--fail-under", "0.13", "--metric", "total_variation"), 0, "<= 0.13"),
        (("--fail-under", "0.12", "--metric", "total_variation"), 1, "> 0.12"),
        (("--fail-under", "0.5", "--metric", "nothing"), 2, "unknown metric"),
    ],
)
def test_the_gate(arguments: tuple[str, ...], code: int, reason: str) -> None:
    result = command("agree", *VOICE, *arguments)
    assert result.exit_code == code
    assert reason in result.output


def test_the_published_total_and_all_outputs(tmp_path: Path) -> None:
    result = command("agree", *VOICE, "--names", "seed", "Jev", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "138/144" in result.output
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report.md", "report.html"}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (LAB, "more than once"),
        ((*LAB, "--on", "nothing/here"), "nothing on the right side"),
        (("--left", "absent.jsonl", "--right", "absent.jsonl"), "no such file"),
        (("--left", "absent.jsonl"), "--left and --right"),
        ((*LAB, "--steps", "1", "--right-url", "http://x"), "--right-url needs --url"),
        *((("--threshold", value, *VOICE), "--threshold lies between") for value in ("0", "1", "-0.1", "nan", "inf")),
        *((("--gate", value, *VOICE), "--gate lies between") for value in ("1.1", "nan")),
        *((("--fail-under", value, *VOICE), "--fail-under lies between") for value in ("nan", "1.01", "-0.5", "inf")),
        ((*VOICE, "--type", "nool"), "noul, choice, score"),
        (("--url", "http://127.0.0.1:65536", "--fixtures", str(FIXTURES / "jev")), "a number from 1 to 65535"),
    ],
)
def test_what_cannot_be_compared_is_said(arguments: tuple[str, ...], reason: str) -> None:
    result = command("agree", *arguments)
    assert result.exit_code == 2
    assert reason in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b'{"id": NaN}', "odd.jsonl:1: not JSON"), (b"\xff", "odd.jsonl:1: not UTF-8"), (b"", "no line")],
)
def test_an_unusable_file_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(content)
    result = command("agree", "--left", str(path), *LAB[2:])
    assert result.exit_code == 2
    assert reason in result.output.replace("\n", "")


@pytest.mark.parametrize("threshold", ["0.01", "0.5", "0.75", "0.99"])
def test_the_top_answers_stay_at_any_threshold(threshold: str) -> None:
    result = command("agree", *LAB, "--steps", "1", "--threshold", threshold, "--fail-under", "0.9", "--quiet")
    assert result.exit_code == 0, result.output
    assert "agreement 185/192" in result.output


def test_record_then_agree_with_the_recording(tmp_path: Path) -> None:
    requests, kept = tmp_path / "requests.json", tmp_path / "kept.jsonl"
    requests.write_text(json.dumps([body("noul", "choice", "score"), body("noul", state={"a": 1})]), encoding="utf-8")
    with served(STUB) as url:
        recorded = command("record", "--requests", str(requests), "--out", str(kept), "--url", url)
        assert recorded.exit_code == 0, recorded.output
        fixtures = load_fixtures([kept])
        assert [fixture.answer for fixture in fixtures[:3]] == list(ANSWERS.values())
        answers = tmp_path / "answers.jsonl"
        result = command(
            "agree", "--url", url, "--fixtures", str(kept), "--answers", str(answers), "--fail-under", "1", "--quiet"
        )
        assert result.exit_code == 0, result.output
        assert "4/4" in result.output
        assert len(load_fixtures([answers])) == 4
        twice = command("agree", "--url", url, "--fixtures", str(kept), "--right-url", url, "--fail-under", "1")
        assert twice.exit_code == 0, twice.output


@pytest.mark.parametrize("odd", ["nonsense", "probabilities"])
def test_a_live_answer_outside_the_allowed_set_counts_as_invalid(tmp_path: Path, odd: str) -> None:
    async def oddly(request: Request) -> Response:
        answered = await _answer(request)
        content = json.loads(bytes(answered.body))
        for given in content["answers"].values():
            if given["type"] == "choice" and odd == "nonsense":
                given.update(choice=odd, probabilities={odd: 1.0})
            elif given["type"] == "choice":
                given.update(probabilities={"a": 0.8, odd: 0.2})
        return Response(json.dumps(content), media_type="application/json")

    kept, asked = tmp_path / "kept.jsonl", tmp_path / "asked.json"
    asked.write_text(json.dumps([body("noul", "choice", "score")]), encoding="utf-8")
    with served(STUB) as url:
        assert command("record", "--requests", str(asked), "--out", str(kept), "--url", url).exit_code == 0
    with served(Starlette(routes=[Route("/v1/systemone", oddly, methods=["POST"])])) as url:
        live = ("agree", "--url", url, "--fixtures", str(kept), "--metric", "validity", "--fail-under", "1", "--quiet")
        result = command(*live)
    assert result.exit_code == 1
    assert "FAIL: validity 2/3" in result.output


def test_the_seeds_runs_are_not_jevs_noise(tmp_path: Path) -> None:
    with served(STUB) as url:
        live = ("--url", url, "--fixtures", str(FIXTURES), "--on", "jevstiller", "--json", str(tmp_path / "live.json"))
        assert command("agree", *live, "--quiet").exit_code in {0, 3}
    recorded = ("--left", str(FIXTURES / "seed" / "public_evals_1step.jsonl"), "--right", str(FIXTURES))
    result = command("agree", *recorded, "--on", "public-evals", "--json", str(tmp_path / "kept.json"), "--quiet")
    assert result.exit_code == 0, result.output
    runs = [json.loads((tmp_path / name).read_text(encoding="utf-8"))["noise"] for name in ("live.json", "kept.json")]
    assert [[floor["run"] for floor in floors] for floors in runs] == [["jev-1.14.0"], []]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    result = command("agree", "--url", "http://127.0.0.1:9", "--fixtures", str(FIXTURES / "jev"), "--on", "jevnav")
    assert result.exit_code == 3
    assert "no answer from http://127.0.0.1:9" in " ".join(result.output.split())


def test_ctrl_c_keeps_the_answers_and_the_next_run_goes_on(tmp_path: Path) -> None:
    asked = 0

    async def slowly(request: Request) -> Response:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.25)
        return await _answer(request)

    answers = tmp_path / "answers.jsonl"
    with served(Starlette(routes=[Route("/v1/systemone", slowly, methods=["POST"])])) as url:
        options = ["--url", url, "--fixtures", str(FIXTURES / "jev"), "--on", "jev-tools/sms-spam", "--quiet"]
        command_line = [sys.executable, "-m", "openjev_server.cli", "agree", *options, "--answers", str(answers)]
        command_line += ["--concurrency", "1"]
        process = subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        until(lambda: asked >= 3 and answers.exists(), seconds=60)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"Traceback" not in output
        kept = len(load_fixtures([answers]))
        assert 1 <= kept < 20
        asked = 0
        assert command("agree", *options, "--answers", str(answers)).exit_code == 0
    assert asked == 20 - kept
    assert len(load_fixtures([answers])) == 20


def test_import_cases(tmp_path: Path) -> None:
    content = {"documents": ["d"], "questions": [body("noul")["questions"]["noul"]], "cases": {}}
    node = {"node": "first", "ran": True, "doc": 0, "questions": {"q": 0}, "answers": {"q": {"noul": 0.5}}}
    content["cases"] = {"one": {"models": {"typesafe": {"model": "v1", "nodes": [node]}}}}
    path = tmp_path / "mail-cases.js"
    path.write_text(f"show({json.dumps({'eval': content})})", encoding="utf-8")
    result = command("import-cases", str(path), "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert len(load_fixtures([tmp_path / "out"])) == 1
    assert command("import-cases", str(tmp_path / "absent.js"), "--out", str(tmp_path)).exit_code == 2
    twin = path.with_name("other") / path.name
    twin.parent.mkdir()
    twin.write_bytes(path.read_bytes())
    result = command("import-cases", str(path), str(twin), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "would hold typesafe:v1" in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("agree", "--url", "http://127.0.0.1:9", "--fixtures", str(FIXTURES / "jev"), "--answers"),
        *(("agree", *VOICE, flag) for flag in ("--json", "--markdown", "--html", "--out")),
        ("record", "--requests", "requests.json", "--out"),
        ("shadow", "--upstream", "http://127.0.0.1:9", "--out"),
        ("import-cases", "mail-cases.js", "--out"),
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_what_cannot_be_written_is_one_line_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    for name in ("comparison.ask_live", "comparison.compare", "cases.import_cases"):
        monkeypatch.setattr(f"openjev_compat.{name}", lambda *_, **__: pytest.fail("it began"))
    monkeypatch.setattr("uvicorn.run", lambda *_, **__: pytest.fail("it began"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requests.json").write_text(json.dumps([body("noul")]))
    (tmp_path / "file").touch()
    result = command(*words, str(tmp_path / "file" / "x"))
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    assert result.output.startswith("error: cannot write")
    assert result.output.count("\n") == 1
