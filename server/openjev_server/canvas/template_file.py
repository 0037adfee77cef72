"""Templates that an owner writes: a TOML or JSON file on top of a shipped template.

```toml
base = "seed-1"                  # what is not said here is taken from it
name = "seed-own-wording"
version = "1"
prompt = '''
<document>{{ document | json }}</document>
{% for field in fields %}{{ field.key | json }}: {{ field.question }} {{ field.allowed | json }}
{% endfor %}'''
# prompt_file = "prompt.jinja"   # instead, beside this file
canvas_head = [{control = "<|channel>"}, "thought\\n", {control = "<channel|>"}]
canvas_tail = [{control = "<turn|>"}]
width_multiple = 256
```
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, ValidationError

from openjev_server.canvas.prompt import Prompt, PromptError
from openjev_server.canvas.template import Control, Keys, Noise, Part, Spelling, Template
from openjev_server.engine.protocol import SelfConditioning
from openjev_server.questions import Choice, Noul, Option, Question, Score

__all__ = ["SUFFIXES", "TemplateFile", "TemplateFileError", "read_template"]

SUFFIXES = (".toml", ".json")


_STATE = "probe0state"
_PROBES: tuple[Question, ...] = (
    Noul("probe1id", None, true="probe1true"),
    Noul("probe2id", {"ask": "probe2question"}, false="probe2false"),
    Choice("probe3id", "probe3question", (Option("probe3option"), Option("probe4option", {"is": "probe4meaning"}))),
    Score("probe5id", "probe5question", ("probe5level", ["probe6level"])),
    Score("probe7id", None, ("low", "high")),
)
"""What a prompt must be able to ask: texts that are absent, and texts that are data."""
_SHOWN = {
    "the document": (_STATE,),
    "the questions": ("probe2question", "probe3question", "probe5question"),
    "the criteria of yes and no": ("probe1true", "probe2false"),
    "the options": ("probe3option", "probe4option"),
    "the descriptions of options": ("probe4meaning",),
    "the levels": ("probe5level", "probe6level"),
}
"""What every prompt must show, and the texts of the probes that tell."""
_KEYS = tuple(question.id for question in _PROBES)


class TemplateFileError(ValueError):
    """A template file that cannot be used; the message names the file and what is wrong."""


class ControlToken(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    control: str


class TemplateFile(BaseModel):
    """What a file may say. A text is taken as it stands; `{control = "NAME"}` is one control token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base: str = "openjev-literal-1"
    name: str
    version: str = "1"
    prompt: str | None = None
    """Jinja source of the user turn, see `canvas.prompt`."""
    prompt_file: str | None = None
    """The same in a file beside this one."""
    canvas_head: tuple[ControlToken | str, ...] | None = None
    canvas_tail: tuple[ControlToken | str, ...] | None = None
    canvas_fill: str | None = None
    width_multiple: PositiveInt | None = None
    grouped_width: PositiveInt | None = None
    grouped_open: str | None = None
    grouped_separator: str | None = None
    grouped_close: str | None = None
    keys: Keys | None = None
    noise: Noise | None = None
    self_conditioning: SelfConditioning | None = None
    temperature: tuple[PositiveFloat, PositiveFloat] | None = None
    entropy_bound: PositiveFloat | None = None


def read_template(path: Path, known: Mapping[str, Template]) -> Template:
    """The template of a file; `known` are the ones it may name as its base. Raises TemplateFileError."""
    try:
        source = path.read_bytes()
        if path.suffix == ".toml":
            file = TemplateFile.model_validate(tomllib.loads(source.decode("utf-8")))
        else:
            file = TemplateFile.model_validate_json(source)
    except OSError as error:
        raise TemplateFileError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TemplateFileError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg']}" for e in error.errors())
        raise TemplateFileError(f"{path}: {faults}") from error
    base = known.get(file.base)
    if base is None:
        raise TemplateFileError(f"{path}: no template {file.base!r} to start from; known: {', '.join(sorted(known))}")
    changes = _changes(file, path)
    template = dataclasses.replace(base, **changes)
    if template.prompt or "prompt" in changes:
        if template.spelling is not Spelling.LITERAL:
            raise TemplateFileError(f"{path}: a prompt needs a base that spells values, not labels")
        try:
            text = Prompt(template.prompt).text(_STATE, _PROBES, _KEYS)
        except PromptError as error:
            raise TemplateFileError(f"{path}: {error}") from error
        if lacking := _lacking(text, template.keys):
            raise TemplateFileError(f"{path}: the prompt does not show {', '.join(lacking)}")
    return template


def _lacking(text: str, keys: Keys) -> list[str]:
    """What a prompt that asked the probes leaves out. Keys that count up can be told from the order."""
    needed = _SHOWN | ({"the keys of the fields": _KEYS} if keys is Keys.IDS else {})
    return [what for what, probes in needed.items() if not all(probe in text for probe in probes)]


def _changes(file: TemplateFile, path: Path) -> dict[str, Any]:
    changes = {
        name: getattr(file, name)
        for name in TemplateFile.model_fields
        if name not in ("base", "prompt_file", "canvas_head", "canvas_tail") and getattr(file, name) is not None
    }
    for name, parts in (("canvas_head", file.canvas_head), ("canvas_tail", file.canvas_tail)):
        if parts is not None:
            changes[name] = tuple(map(_part, parts))
    if file.prompt_file is not None:
        if file.prompt is not None:
            raise TemplateFileError(f"{path}: prompt and prompt_file are given; one is enough")
        try:
            changes["prompt"] = (path.parent / file.prompt_file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateFileError(f"{path}: {file.prompt_file} cannot be read: {error}") from error
    return changes


def _part(part: ControlToken | str) -> Part:
    if isinstance(part, ControlToken):
        return Control(part.control)
    return part.replace("{", "{{").replace("}", "}}")
