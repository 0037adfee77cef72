"""A small random checkpoint laid out like the released model: turns, chat template, transformers' tensor names."""

from __future__ import annotations

from pathlib import Path

from canvas_tokenizers import GEMMA_CHAT, gemma_named
from random_models import save_random

__all__ = ["save_released"]


def save_released(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = gemma_named()
    save_random(directory, vocab_size=tokenizer.get_vocab_size())
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "chat_template.jinja").write_text(GEMMA_CHAT, encoding="utf-8")
    return directory
