"""Parts of a Markdown file that commands write, each between two marks."""

from __future__ import annotations

from pathlib import Path

__all__ = ["fill", "marked"]


def fill(text: str, name: str, content: str) -> str:
    """`text` with `content` between the marks of `name`. Raises ValueError unless it has both."""
    before, _, after = _parts(text, name)
    return f"{before}\n{content.strip()}\n{after}"


def marked(path: Path, name: str) -> str:
    """What stands between the marks of `name`. Raises ValueError unless the file has both."""
    return _parts(path.read_text(encoding="utf-8"), name)[1].strip()


def _parts(text: str, name: str) -> tuple[str, str, str]:
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, found, rest = text.partition(begin)
    inside, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no {begin} ... {end} in the file")
    return before + begin, inside, end + after
