"""A checkpoint's own chat template as what stands before and after one user message.

The template is rendered around a placeholder and cut there: what a user writes is never part of what it renders, and
spelling a control token in a message does not make one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from openjev_server.canvas.template import Control, Part, Template
from openjev_server.canvas.tokenizer import TextTokenizer

__all__ = ["ChatTemplateError", "ChatTurn", "bound", "chat_turn", "read_chat_template"]

PLACEHOLDER = "OPENJEVMESSAGE"
PROBE = f"""\
{PLACEHOLDER} MiXed Case,  two blanks,\ta tab, an accented \u00e9e\u0301 \u00df \u6f22, 12,345 <b>&amp; "it's" \\n `x`
  {{"data": [1, {{}}]}} {{{{ braces }}}} {{% raw %}} # * _ ~ | $

\r\n
{PLACEHOLDER}"""
"""A message that a template which changes case, blanks, line ends, quotes, markup or other letters does not show as
it is."""
CHANGES = (
    "the chat template changes a message's text (case, blanks, lines or characters), and what is asked must reach the "
    "model as it is; use one that shows the content unchanged, or trimmed at its ends"
)
TEMPLATE_FILE = "chat_template.jinja"
CONFIG_FILE = "tokenizer_config.json"


class ChatTemplateError(ValueError):
    """The checkpoint's chat template cannot be rendered, or does not show the message once and as it is."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One user turn and the start of the model's."""

    before: tuple[Part, ...]
    after: tuple[Part, ...]
    trims: bool
    """Whether blanks around a message are lost."""
    hash: str
    """12 hex digits over the chat template."""


def read_chat_template(directory: Path) -> str | None:
    """The Jinja source in `chat_template.jinja`, else in `tokenizer_config.json`; None without one.

    Raises ChatTemplateError for a configuration that is not a JSON object.
    """
    path = directory / TEMPLATE_FILE
    if path.is_file():
        return path.read_text(encoding="utf-8")
    config = directory / CONFIG_FILE
    if not config.is_file():
        return None
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ChatTemplateError(f"{CONFIG_FILE} is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise ChatTemplateError(f"{CONFIG_FILE} is not a JSON object")
    source = settings.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = next(
            (entry.get("template") for entry in source if isinstance(entry, dict) and entry.get("name") == "default"),
            None,
        )
    return source if isinstance(source, str) else None


def chat_turn(source: str, tokenizer: TextTokenizer) -> ChatTurn:
    """Renders one user message with a generation prompt. Raises ChatTemplateError."""
    names = _control_names(tokenizer)
    alone = _rendered(source, tokenizer, PLACEHOLDER)
    pieces = alone.split(PLACEHOLDER)
    if len(pieces) == 1 and PLACEHOLDER.casefold() in alone.casefold():
        raise ChatTemplateError(CHANGES)
    if len(pieces) != 2:
        raise ChatTemplateError(f"the chat template shows a message {len(pieces) - 1} times, not once")
    before, after = pieces
    if _rendered(source, tokenizer, PROBE) != before + PROBE + after:
        raise ChatTemplateError(CHANGES)
    return ChatTurn(
        before=_parts(before, names),
        after=_parts(after, names),
        trims=_trims(source, tokenizer, before, after),
        hash=hashlib.blake2b(source.encode(), digest_size=6).hexdigest(),
    )


def _trims(source: str, tokenizer: TextTokenizer, before: str, after: str) -> bool:
    """Whether blanks around a message are lost, all or none. Raises ChatTemplateError."""
    blanks = " \n\t "
    shown = _rendered(source, tokenizer, f"{blanks}{PLACEHOLDER}{blanks}")
    if shown not in (whole := f"{before}{blanks}{PLACEHOLDER}{blanks}{after}", f"{before}{PLACEHOLDER}{after}"):
        raise ChatTemplateError("the chat template strips a part of the blanks around a message, not all or none")
    return shown != whole


def bound(template: Template, turn: ChatTurn) -> Template:
    """The template with the checkpoint's markup in the place of our own; one without chat markup stays as it is.

    Where the markup already ends with what the canvas begins with (an empty thought block), it stands there alone.
    """
    if not template.turn_open:
        return template
    head = template.canvas_head
    return dataclasses.replace(
        template,
        turn_open=turn.before,
        turn_close=turn.after,
        canvas_head=() if head and turn.after[-len(head) :] == head else head,
        chat=turn.hash,
        trim=turn.trims,
    )


def _rendered(source: str, tokenizer: TextTokenizer, message: str) -> str:
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(reason: str) -> None:
        raise TemplateError(reason)

    # As transformers renders chat templates.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    tokens = {
        f"{name}_token": f"<{name}>" if tokenizer.has(f"<{name}>") else "" for name in ("bos", "eos", "pad", "unk")
    }
    try:
        text: str = environment.from_string(source).render(
            messages=[{"role": "user", "content": message}],
            add_generation_prompt=True,
            tools=None,
            documents=None,
            **tokens,
        )
    except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise ChatTemplateError(f"the chat template cannot be rendered: {error}") from error
    return text


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _control_names(tokenizer: TextTokenizer) -> list[str]:
    names = tokenizer.names()
    return sorted((names[i] for i in tokenizer.controls), key=len, reverse=True)


def _parts(text: str, names: list[str]) -> tuple[Part, ...]:
    """The text cut at control tokens. Braces are doubled: parts are format strings."""
    if not names:
        return (_escaped(text),) if text else ()
    pieces = re.split(f"({'|'.join(map(re.escape, names))})", text)
    known = set(names)
    return tuple(Control(piece) if piece in known else _escaped(piece) for piece in pieces if piece)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
