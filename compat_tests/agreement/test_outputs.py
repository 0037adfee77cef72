"""What the report looks like: terminal, JSON, Markdown, and the page in a browser."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest
from agreement.made import choice, fixture, noul, score
from openjev_compat.cli import app
from openjev_compat.cost import Prices
from openjev_compat.fixture import Request, Usage
from openjev_compat.markdown import markdown
from openjev_compat.metrics import Thresholds
from openjev_compat.output import without_texts, write_report
from openjev_compat.report import Report, build_report
from openjev_compat.terminal import print_report
from rich.console import Console
from typer.testing import CliRunner

HOSTILE = "<script>alert('state')</script> [bold]x[/] | {{ 7*7 }}"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@cache
def report() -> Report:
    """Every part filled in: all types, references, a repeated run, latencies, prices, hostile text."""
    left, right = [], []
    for number in range(40):
        p = number / 40
        hostile = Request({"text": HOSTILE}, {"type": "noul", "instructions": HOSTILE})
        reference = {"true" if number % 3 else "false": 1.0}
        shared = {"case": f"case {number // 2}", "workflow": "made/first" if number % 2 else "made/second"}
        left.append(
            fixture(
                f"n{number}",
                noul(p),
                latency_ms=50.0 + number,
                usage=Usage(200, 20, 1),
                node=f"n{number}",
                **shared,
            )
        )
        right.append(fixture(f"n{number}", noul(p**2), request=hostile, reference=reference, **shared))
    left += [fixture("c", choice(0.1, 0.2, 0.7)), fixture("s", score(0.7, 0.2, 0.1))]
    right += [fixture("c", choice(0.8, 0.2, 0.0)), fixture("s", score(0.0, 0.2, 0.8))]
    right.append(fixture("n3", noul(0.01), run="again"))
    return build_report(
        left,
        right,
        names=("ours <1>", "Jev"),
        thresholds=Thresholds(),
        prices=Prices(usd_per_million_input=0.042),
    )


def test_a_missing_extra_is_said_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for module in [name for name in sys.modules if name.startswith(("openjev_compat.html", "openjev_compat.plots"))]:
        monkeypatch.delitem(sys.modules, module)
    for name in ("html", "plots"):  # an earlier test may have imported them
        monkeypatch.delattr(f"openjev_compat.{name}", raising=False)
    arguments = [
        "agree",
        "--url",
        "http://127.0.0.1:9",
        "--fixtures",
        str(tmp_path),
        "--html",
        str(tmp_path / "x.html"),
    ]
    monkeypatch.setattr("openjev_compat.comparison.compare", lambda *_: pytest.fail("asked"))
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "matplotlib is needed" in result.output
    assert "[agree]" in result.output


def page(directory: Path, made: Report) -> str:
    write_report(made, json_path=None, markdown_path=None, html_path=directory / "report.html")
    return (directory / "report.html").read_text(encoding="utf-8")


def test_a_slices_name_keeps_room_on_a_narrow_screen(tmp_path: Path) -> None:
    """It may break anywhere, so a table wider than the screen left it one character a line."""
    rule = re.search(r"^td:first-child \{.*overflow-wrap: anywhere.*\}$", page(tmp_path, report()), re.MULTILINE)
    assert rule is not None
    assert "min-width: 150px" in rule[0]


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal_shows_every_part(width: int) -> None:
    text = io.StringIO()
    print_report(report(), Console(file=text, width=width))
    shown = text.getvalue()
    for part in (
        "ours <1>",
        "same top answer",
        "made/first",
        "again",
        "McNemar",
        "p95",
        "$0.0084 per 1,000",
        "majority",
    ):
        assert part in shown
    assert all(len(line) <= width for line in shown.splitlines())


def test_json_holds_the_numbers_of_the_report(tmp_path: Path) -> None:
    made = report()
    write_report(made, json_path=tmp_path / "r.json", markdown_path=None, html_path=None)
    loaded = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert loaded == json.loads(json.dumps(made.to_json()))
    agreement = next(row for row in loaded["overall"]["estimates"] if row["name"] == "agreement")
    assert agreement["n"] == 42
    assert agreement["low"] < agreement["value"] < agreement["high"]


def test_markdown_tables_are_well_formed() -> None:
    text = markdown(report())
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert len(blocks) == 7
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(widths) == 1, block


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in {"src", "href", "xlink:href"}]


def test_the_page_is_self_contained_and_escapes_what_was_asked(tmp_path: Path) -> None:
    text = page(tmp_path, report())
    parsed = _Page()
    parsed.feed(text)
    assert "script" not in parsed.tags
    assert parsed.tags.count("svg") == 4
    assert all(link.startswith("#") for link in parsed.links)
    assert "@import" not in text
    assert "&lt;script&gt;" in text
    assert "{{ 7*7 }}" in text
    assert len(text) < 400_000


def test_the_page_is_the_same_each_time(tmp_path: Path) -> None:
    assert page(tmp_path, report()) == page(tmp_path, report())


def test_texts_can_be_left_out(tmp_path: Path) -> None:
    made = without_texts(report())
    assert "alert" not in page(tmp_path, made)
    assert "alert" not in json.dumps(made.to_json())


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    browser = next((found for name in BROWSERS if (found := shutil.which(name)) is not None), None)
    if browser is None:
        pytest.skip("no Chromium here")
    page(tmp_path, report())
    target = Path(os.environ.get("OPENJEV_SCREENSHOT", tmp_path / "report.png"))
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    address = (tmp_path / "report.html").as_uri()
    subprocess.run(
        [browser, *flags, "--window-size=1200,4200", f"--screenshot={target}", address],
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert target.read_bytes().startswith(b"\x89PNG")
    assert target.stat().st_size > 50_000  # an empty page is a tenth of that
    probe = "<script>document.title = 'wide:' + (document.documentElement.scrollWidth > window.innerWidth)</script>"
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for width in (1200, 700):
        (tmp_path / "probe.html").write_text(text.replace("</body>", probe + "</body>"), encoding="utf-8")
        dumped = subprocess.run(
            [browser, *flags, f"--window-size={width},900", "--dump-dom", (tmp_path / "probe.html").as_uri()],
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        assert "<title>wide:false</title>" in dumped, width
