"""The shipped templates, and which one a tokenizer asks for."""

from __future__ import annotations

from openjev_server.canvas.template import LABEL, Control, Form, Spelling, Template
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.engine.protocol import SelfConditioning

__all__ = ["NANO_LABEL", "NANO_LITERAL", "OPENJEV_LITERAL", "TEMPLATES", "UnknownTemplate", "template_for"]


class UnknownTemplate(LookupError):
    """No shipped template has this id, or none fits the tokenizer."""


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

OPENJEV_LITERAL = Template(
    name="openjev-literal",
    version="1",
    spelling=Spelling.LITERAL,
    state=(Control("<bos>"), Control("<|turn>"), "user\n{state}"),
    opening=(_LITERAL_ORDER,),
    noul=_LITERAL_NOUL,
    choice=_LITERAL_CHOICE,
    score=_LITERAL_SCORE,
    closing=(Control("<turn|>"), "\n", Control("<|turn>"), "model\n"),
    canvas_head=(Control("<|channel>"), "thought\n", Control("<channel|>")),
    canvas_tail=(Control("<turn|>"),),
    canvas_fill="<eos>",
    width_multiple=32,
)
"""For checkpoints with Gemma's turn markup. The empty thought block is what the released model writes by itself
before an answer; here it is frozen."""

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

TEMPLATES = {template.id: template for template in (NANO_LABEL, OPENJEV_LITERAL, NANO_LITERAL)}
_AUTO = (NANO_LABEL, OPENJEV_LITERAL)


def template_for(tokenizer: TextTokenizer, name: str = "auto") -> Template:
    """The template of this id, or with `auto` the first whose control tokens the tokenizer has.

    Raises UnknownTemplate.
    """
    if name != "auto":
        if name not in TEMPLATES:
            raise UnknownTemplate(f"unknown template {name!r}; known: auto, {', '.join(sorted(TEMPLATES))}")
        candidates: tuple[Template, ...] = (TEMPLATES[name],)
    else:
        candidates = _AUTO
    for template in candidates:
        missing = [token for token in template.controls if not tokenizer.has(token)]
        if template.spelling is Spelling.LABEL:
            missing += [token for token in ("<true>", "<false>", "<o0>", "<o254>") if not tokenizer.has(token)]
        if not missing:
            return template
    if name != "auto":
        raise UnknownTemplate(f"template {name!r} needs tokens that the tokenizer lacks: {', '.join(missing)}")
    raise UnknownTemplate(f"no template of {', '.join(t.id for t in candidates)} fits the tokenizer's control tokens")
