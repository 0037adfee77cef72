"""Write a report to the files that were asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from .markdown import markdown
from .report import Report

__all__ = ["MissingExtraError", "check_html", "without_texts", "write_report"]


class MissingExtraError(Exception):
    """A package of the extra `agree` is not installed."""


def without_texts(report: Report) -> Report:
    """The report for those who may not see what was asked."""
    return replace(report, disagreements=tuple(replace(row, state=None, question=None) for row in report.disagreements))


def write_report(report: Report, *, json_path: Path | None, markdown_path: Path | None, html_path: Path | None) -> None:
    """Write each file that has a path. Raises MissingExtraError when the page's plots cannot be drawn."""
    if json_path is not None:
        _write(json_path, json.dumps(report.to_json(), ensure_ascii=False, indent=1) + "\n")
    if markdown_path is not None:
        _write(markdown_path, markdown(report))
    if html_path is not None:
        check_html()
        from .html import html_page

        _write(html_path, html_page(report))


def check_html() -> None:
    """Raises MissingExtraError when the page's plots cannot be drawn, which is worth knowing before asking."""
    try:
        from . import html  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"{error.name} is needed for the HTML page: pip install 'openjev-canvas[agree]', or from a checkout "
            "pip install -e '.[agree]'"
        ) from None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
