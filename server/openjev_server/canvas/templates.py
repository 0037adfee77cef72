"""The shipped templates, and which one a tokenizer asks for."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from openjev_server.canvas.chat import ChatTemplateError, bound, chat_turn
from openjev_server.canvas.plan import Planner
from openjev_server.canvas.template import LABEL, Control, Form, Keys, Noise, Spelling, Template
from openjev_server.canvas.template_file import SUFFIXES, TemplateFileError, read_template
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.engine.protocol import SelfConditioning

__all__ = [
    "NANO_LABEL",
    "NANO_LITERAL",
    "OPENJEV_LITERAL",
    "SEED",
    "TEMPLATES",
    "UnknownTemplate",
    "canonical_id",
    "is_template_file",
    "shipped_hash",
    "template_for",
]


class UnknownTemplate(LookupError):
    """No template has this id or is in this file, or none fits the tokenizer; the message says which and why."""


NANO_LABEL = Template(
    name="nano-label",
    version="v1",
    spelling=Spelling.LABEL,
    state=(Control("<bos>"), "{state}", Control("<state>")),
    noul=Form(
        head=(Control("<question>"), "{instructions}"),
        described=(" {name} if: {meaning}",),
        bare=(),
        tail=(Control("<answer>"),),
    ),
    choice=Form(
        head=(Control("<question>"), "{instructions}"),
        described=(Control("<option>"), " {name}: {meaning}", LABEL),
        bare=(Control("<option>"), " {name}", LABEL),
        tail=(Control("<answer>"),),
    ),
    score=Form(
        head=(Control("<question>"), "{instructions}"),
        described=(),
        bare=(Control("<option>"), " {name}", LABEL),
        tail=(Control("<answer>"),),
    ),
    canvas_tail=(Control("<eos>"),),
    canvas_fill="<eos>",
    self_conditioning=SelfConditioning.SLOTS,
)
"""What the embedded checkpoint was trained with. A label comes after its option, so that a causal encoder has read
the option when it reaches the label. Noul criteria and the grouped layout were not in its training data."""

_LITERAL_NOUL = Form(
    head=('\n"{key}": {instructions}\nAllowed values: true, false',),
    described=("\n{value} means: {meaning}",),
    bare=(),
)
_LITERAL_CHOICE = Form(
    head=('\n"{key}": {instructions}\nAllowed values:',),
    described=("\n- {value}: {meaning}",),
    bare=("\n- {value}",),
)
_LITERAL_SCORE = Form(
    head=('\n"{key}": {instructions}\nAllowed values:',),
    described=(),
    bare=("\n- {value}: {name}",),
)
_LITERAL_ORDER = "\n\nAnswer the following about the text above. Return one JSON object and nothing else.\n"

_TURN_OPEN = (Control("<bos>"), Control("<|turn>"), "user\n")
_TURN_CLOSE = (Control("<turn|>"), "\n", Control("<|turn>"), "model\n")
"""For a checkpoint directory without a chat template of its own."""

OPENJEV_LITERAL = Template(
    name="openjev-literal",
    version="1",
    spelling=Spelling.LITERAL,
    turn_open=_TURN_OPEN,
    state=("{state}",),
    opening=(_LITERAL_ORDER,),
    noul=_LITERAL_NOUL,
    choice=_LITERAL_CHOICE,
    score=_LITERAL_SCORE,
    turn_close=_TURN_CLOSE,
    canvas_head=(Control("<|channel>"), "thought\n", Control("<channel|>")),
    canvas_tail=(Control("<turn|>"),),
    canvas_fill="<eos>",
    width_multiple=32,
)
"""For the released model and others with Gemma's turn markup: the state first, so that it is shared, one question
after it. The empty thought block is what the released model writes by itself before an answer; here it is frozen."""

_UNUSED = Form((), (), ())

SEED = Template(
    name="seed",
    version="1",
    spelling=Spelling.LITERAL,
    turn_open=_TURN_OPEN,
    prompt="""\
<document>
{{ document | json }}
</document>

<fields>
Answer from the document. Return one JSON object with these fields, and nothing else.
{% for field in fields %}

{{ field.key | json }}
{% if field.question is not none %}
Question: {{ field.question if field.question is string else field.question | json }}
{% endif %}
{% if field.criteria is not none %}
Criteria: {{ field.criteria | json }}
{% endif %}
Allowed values: {{ field.allowed | json }}
{% endfor %}
</fields>""",
    state=(),
    noul=_UNUSED,
    choice=_UNUSED,
    score=_UNUSED,
    turn_close=_TURN_CLOSE,
    canvas_tail=(),
    canvas_fill="<eos>",
    width_multiple=256,
    grouped_width=256,
    grouped_open="{\n",
    grouped_separator=",\n",
    grouped_close="\n}",
    keys=Keys.IDS,
    noise=Noise.SHARED,
    self_conditioning=SelfConditioning.ALLOWED,
    temperature=(0.8, 0.4),
    entropy_bound=0.1,
)
"""How JoshuaSP/open-jev asked the released model, in words of our own: to compare with its recorded answers. Its own
wording, in a template file, is what reproduces it; see `openjev reproduce-seed`."""

NANO_LITERAL = Template(
    name="nano-literal",
    version="1",
    spelling=Spelling.LITERAL,
    state=(Control("<bos>"), "{state}", Control("<state>")),
    opening=(Control("<question>"), _LITERAL_ORDER.strip()),
    noul=_LITERAL_NOUL,
    choice=_LITERAL_CHOICE,
    score=_LITERAL_SCORE,
    closing=(Control("<answer>"),),
    canvas_tail=(Control("<eos>"),),
    canvas_fill="<eos>",
    self_conditioning=SelfConditioning.SLOTS,
)
"""Experimental: JSON values in the embedded checkpoint's own markup, which it was not trained on."""

TEMPLATES = {template.id: template for template in (NANO_LABEL, OPENJEV_LITERAL, NANO_LITERAL, SEED)}
_AUTO: tuple[Template, ...] = (NANO_LABEL, OPENJEV_LITERAL)


_SHORT = {template.name: template.id for template in TEMPLATES.values()}
"""A name without its version stands for the one that is shipped."""


def canonical_id(name: str) -> str:
    """`seed-1` for `seed`: what a template's name means; anything else as it is."""
    return _SHORT.get(name, name)


def shipped_hash(template: Template) -> str | None:
    """Hash of a template with the turn markup that it has before a checkpoint's chat template is put in; None for one
    that is not among the shipped ones."""
    own = TEMPLATES.get(template.id)
    if own is None:
        return None
    markup = {name: getattr(own, name) for name in ("turn_open", "turn_close", "canvas_head", "chat", "trim")}
    return replace(template, **markup).hash


def is_template_file(name: str) -> bool:
    """Whether a template's name is the path of a file."""
    return name.endswith(SUFFIXES)


def template_for(tokenizer: TextTokenizer, name: str = "auto", *, chat: str | None = None) -> Template:
    """The template of this id, name or file, or with `auto` the first whose control tokens the tokenizer has.

    `chat` is the checkpoint's chat template, which then writes the turns. Raises UnknownTemplate.
    """
    candidates = _candidates(name)
    if chat is not None and any(template.turn_open for template in candidates):
        try:
            turn = chat_turn(chat, tokenizer)
        except ChatTemplateError as error:
            raise UnknownTemplate(str(error)) from error
        candidates = tuple(bound(template, turn) for template in candidates)
    for template in candidates:
        missing = [token for token in template.controls if not tokenizer.has(token)]
        if template.spelling is Spelling.LABEL:
            missing += [token for token in ("<true>", "<false>", "<o0>", "<o254>") if not tokenizer.has(token)]
        if not missing:
            if is_template_file(name):
                _check_grouped_width(template, tokenizer, name)
            return template
    if name != "auto":
        raise UnknownTemplate(f"template {name!r} needs tokens that the tokenizer lacks: {', '.join(missing)}")
    raise UnknownTemplate(f"no template of {', '.join(t.id for t in candidates)} fits the tokenizer's control tokens")


def _candidates(name: str) -> tuple[Template, ...]:
    if name == "auto":
        return _AUTO
    if is_template_file(name):
        try:
            return (read_template(Path(name), TEMPLATES | {short: TEMPLATES[id_] for short, id_ in _SHORT.items()}),)
        except TemplateFileError as error:
            raise UnknownTemplate(str(error)) from error
    if canonical_id(name) in TEMPLATES:
        return (TEMPLATES[canonical_id(name)],)
    raise UnknownTemplate(
        f"unknown template {name!r}; known: auto, {', '.join(sorted(TEMPLATES))}, these without the version, or a file"
    )


def _check_grouped_width(template: Template, tokenizer: TextTokenizer, name: str) -> None:
    """A width that no field fits would give every question a canvas of its own, and wider than it says."""
    needed = Planner(tokenizer, template, max_width=sys.maxsize).least_grouped_width()
    if template.grouped_width < needed:
        raise UnknownTemplate(
            f"{name}: grouped_width {template.grouped_width} is too small: a canvas with one yes/no field takes "
            f"{needed} tokens"
        )
