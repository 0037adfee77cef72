"""What a model is shown and what it fills in, as data.

A template is a value of `Template`: parts in the order the model reads them. A part is a control token or a text
with named fields; text between two control tokens is tokenised as one piece. The renderer is the same for all.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import cached_property

from openjev_server.engine.protocol import SelfConditioning

__all__ = ["LABEL", "Control", "Form", "Keys", "Noise", "Part", "Spelling", "Template"]


class Spelling(StrEnum):
    """How an answer is written in its slot."""

    LABEL = "label"
    """One control token: `<oI>` for option or level I, `<true>` and `<false>` for a noul."""
    LITERAL = "literal"
    """The JSON value: `true`, a zero-based level, a quoted option name."""


class Keys(StrEnum):
    """What a field of a shared canvas is called."""

    POSITIONAL = "positional"
    """q1, q2, ...: nothing of an answer depends on what the user calls the question."""
    IDS = "ids"
    """The user's ids, as the seed has it."""


class Noise(StrEnum):
    """What the slots hold before the first step."""

    HASHED = "hashed"
    """Drawn from a hash of the question, its state and the template; never a control or special token."""
    SHARED = "shared"
    """The same tokens at the same positions of every canvas, from the whole vocabulary, as the seed has it."""


@dataclass(frozen=True, slots=True)
class Control:
    """One control token."""

    token: str


LABEL = Control("{label}")
"""Stands for the control token of the answer that is being described."""

Part = Control | str


@dataclass(frozen=True, slots=True)
class Form:
    """The wording of one question type.

    Fields of a text: `{key}` and `{instructions}` in head and tail; `{name}` (an option's name, a level's text,
    `Yes`/`No`), `{meaning}` (a description) and `{value}` (the JSON value) for answers.
    """

    head: tuple[Part, ...]
    described: tuple[Part, ...]
    """An answer that has a description."""
    bare: tuple[Part, ...]
    """An answer that has none."""
    tail: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Template:
    """Prompt, canvas and spelling that a checkpoint was trained with, or is asked with."""

    name: str
    version: str
    spelling: Spelling
    state: tuple[Part, ...]
    """Up to the end of the state (`{state}`): the prefix that all questions of a request share."""
    noul: Form
    choice: Form
    score: Form
    canvas_tail: tuple[Part, ...]
    """After the closing brace."""
    canvas_fill: str
    """The control token that fills a canvas up to its width, and evens out rows of unequal length."""
    opening: tuple[Part, ...] = ()
    """Before the questions of a canvas."""
    closing: tuple[Part, ...] = ()
    """After them."""
    canvas_head: tuple[Part, ...] = ()
    """Before the opening brace."""
    width_multiple: int = 1
    """Canvas widths are rounded up to a multiple of this many tokens."""
    grouped_width: int = 256
    """The most tokens that the fields of one shared canvas may take; a single wider field has a canvas of its own."""
    self_conditioning: SelfConditioning = SelfConditioning.FULL
    turn_open: tuple[Part, ...] = ()
    """Before the state. With chat markup, `bound` puts the checkpoint's own here and in `turn_close`."""
    turn_close: tuple[Part, ...] = ()
    """After the question, up to where the canvas begins."""
    chat: str = ""
    """Hash of the chat template that the two above come from; empty for markup of our own."""
    trim: bool = False
    """Whether that chat template strips blanks around a message: a `prompt` is then stripped too."""
    prompt: str = ""
    """Jinja source of the whole user turn (see `canvas.prompt`). State, opening, forms and closing are then unused,
    and prompts of one request share the tokens that they happen to begin with."""
    grouped_open: str = "{"
    grouped_separator: str = ", "
    grouped_close: str = "}"
    keys: Keys = Keys.POSITIONAL
    noise: Noise = Noise.HASHED
    temperature: tuple[float, float] | None = None
    """Of the first step and the limit towards the last, linear in between; conditions and redraws, is never read."""
    entropy_bound: float | None = None
    """Redraws slots between steps: how much entropy (nats) may precede an accepted one. None keeps their tokens."""

    @property
    def id(self) -> str:
        """What fingerprints, calibration files and reports print."""
        return f"{self.name}-{self.version}"

    @cached_property
    def hash(self) -> str:
        """12 hex digits over every parameter: a template that was edited without a new version shows.

        Parameters that came later count only where they are not at their default: older hashes stay what they were.
        """
        values = asdict(self)
        for field in fields(self):
            if field.name in _LATER and values[field.name] == field.default:
                del values[field.name]
        text = json.dumps(values, sort_keys=True, ensure_ascii=True)
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

    @cached_property
    def controls(self) -> tuple[str, ...]:
        """Every control token that it places by itself, sorted; labels not included."""
        forms = (self.noul, self.choice, self.score)
        parts = [*self.turn_open, *self.state, *self.opening, *self.closing, *self.turn_close]
        parts += [*self.canvas_head, *self.canvas_tail]
        for form in forms:
            parts += [*form.head, *form.described, *form.bare, *form.tail]
        named = {part.token for part in parts if isinstance(part, Control) and part != LABEL}
        return tuple(sorted(named | {self.canvas_fill}))

    def temperatures(self, steps: int) -> tuple[float, ...]:
        """One for each step that another follows: transformers' LinearTemperatureScheduleLogitsProcessor."""
        if self.temperature is None:
            return ()
        first, limit = self.temperature
        return tuple(limit + (first - limit) * (steps - done) / steps for done in range(steps - 1))


_LATER = frozenset(
    {"turn_open", "turn_close", "chat", "trim", "prompt", "grouped_open", "grouped_separator", "grouped_close"}
    | {"keys", "noise", "temperature", "entropy_bound"}
)
