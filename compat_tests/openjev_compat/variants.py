"""The ways of asking that `ablate` compares: each differs from the base in one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from openjev_server.canvas import OPENJEV_LITERAL, SEED, Layout, Spelling, Template
from openjev_server.engine.protocol import SelfConditioning

from .local_model import Setup

__all__ = ["FACTORS", "Variant", "base_setup", "variants"]

WIDTHS = (1, 64, 128, 256)
STEPS = (1, 2, 4)
REPLICAS = 4
WEIGHTS = ("bfloat16", "float8", "int4")
THOUGHT = OPENJEV_LITERAL.canvas_head
EOS, PAD = "<eos>", "<pad>"

INSTRUCTIONS_FIRST = """\
Answer the following about the text below. Return one JSON object and nothing else.
{% for field in fields %}

{{ field.key | json }}: {{ field.question if field.question is string else field.question | json }}
{% if field.type == "noul" %}
Allowed values: true, false
{% for value in ["true", "false"] if field.criteria and value in field.criteria %}
{{ value }} means: {{ field.criteria[value] if field.criteria[value] is string else field.criteria[value] | json }}
{% endfor %}
{% else %}
Allowed values:
{% for value in field.allowed %}
{% set meaning = field.criteria[value] %}
- {{ value | json }}{% if meaning is not none %}: {{ meaning if meaning is string else meaning | json }}{% endif +%}
{% endfor %}
{% endif %}
{% endfor %}

{{ document if document is string else document | json }}"""
"""The default template's words with the text after them, where no question can share it."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of asking. `factor` is what it varies; `weights` None leaves them as they are loaded for the base."""

    factor: str
    setup: Setup
    weights: str | None = None
    reason: str | None = None
    """Why there is nothing to run; None where there is."""


def base_setup(template: Template) -> Setup:
    """Noise is that of the base's template for all: where text and canvas are the base's, so is their noise."""
    return Setup("base", template, Layout.ISOLATED, steps=2, noise=f"{template.id}/{template.hash}")


def variants(base: Setup, seed: Template | None, *, weights: str = "auto") -> list[Variant]:
    """All that there are, the base first, and those of which nothing differs from it with that reason.

    `seed` is the seed's template where the tokenizer takes it, `weights` how the base's are loaded.
    """
    found = [Variant("base", base)]
    for factor, make in FACTORS.items():
        found += [Variant(factor, setup, reason=_same(setup, base)) for setup in make(base)]
    if base.template.spelling is not Spelling.LITERAL or not base.template.turn_open or base.template.prompt:
        nothing = "the base's template has no instructions of its own after a text in a chat turn"
        found.append(Variant("order", replace(base, name="instructions first"), reason=nothing))
    absent = "the tokenizer lacks the control tokens of its template" if seed is None else None
    for name, layout, steps in (
        ("the seed, one question, 1 step", Layout.ISOLATED, 1),
        ("the seed, grouped, 2 steps", Layout.GROUPED, 2),
    ):
        found.append(Variant("seed", Setup(name, seed or SEED, layout, steps), reason=absent))
    for kind in WEIGHTS:  # last: the base's weights are let go for them
        there = "the base has them" if kind == weights else None
        found.append(Variant("weights", replace(base, name=f"weights {kind}"), kind, there))
    return found


def _same(setup: Setup, base: Setup) -> str | None:
    return "it is how the base asks" if replace(setup, name=base.name) == base else None


def _changed(base: Setup, name: str, **parameters: object) -> Setup:
    # A name of its own in fingerprints; the hash tells it apart anyway.
    return replace(base, name=name, template=replace(base.template, **parameters))  # type: ignore[arg-type]


def _thought(base: Setup) -> Iterator[Setup]:
    turn = base.template.turn_close
    written = turn[-len(THOUGHT) :] == THOUGHT  # by the checkpoint's chat template
    without = turn[: -len(THOUGHT)] if written else turn
    yield _changed(base, "no thought block", canvas_head=(), turn_close=without)
    yield _changed(base, "empty thought block", canvas_head=() if written else THOUGHT)


def _tail(base: Setup) -> Iterator[Setup]:
    yield _changed(base, "turn left open", canvas_tail=())
    yield _changed(base, "filled with <pad>", canvas_fill=PAD)
    yield _changed(base, "filled with <eos>", canvas_fill=EOS)


def _width(base: Setup) -> Iterator[Setup]:
    for width in WIDTHS:
        name = "canvas as wide as its text" if width == 1 else f"canvas of {width} tokens"
        yield _changed(base, name, width_multiple=width)


def _order(base: Setup) -> Iterator[Setup]:
    if base.template.spelling is Spelling.LITERAL and base.template.turn_open and not base.template.prompt:
        yield _changed(base, "instructions first", prompt=INSTRUCTIONS_FIRST)


def _layout(base: Setup) -> Iterator[Setup]:
    yield replace(base, name="grouped", layout=Layout.GROUPED)
    yield replace(base, name="grouped, 1 step", layout=Layout.GROUPED, steps=1)


def _steps(base: Setup) -> Iterator[Setup]:
    for steps in STEPS:
        yield replace(base, name=f"{steps} steps" if steps > 1 else "1 step", steps=steps)


def _noise(base: Setup) -> Iterator[Setup]:
    """What chance alone changes: the floor under every other row, most of which have other noise too."""
    yield replace(base, name="other noise", noise=f"other than {base.noise}")
    yield replace(base, name=f"{REPLICAS} noise replicas", replicas=REPLICAS)


def _conditioning(base: Setup) -> Iterator[Setup]:
    for kind in (SelfConditioning.FULL, SelfConditioning.ALLOWED):
        yield _changed(base, f"conditioned on {kind} tokens", self_conditioning=kind)
    yield _changed(
        base,
        "allowed tokens, redrawn as the seed does",
        self_conditioning=SelfConditioning.ALLOWED,
        temperature=SEED.temperature,
        entropy_bound=SEED.entropy_bound,
    )


def _none(_: Setup) -> Iterator[Setup]:
    yield from ()


FACTORS: Mapping[str, Callable[[Setup], Iterator[Setup]]] = {
    "thought": _thought,
    "tail": _tail,
    "width": _width,
    "order": _order,
    "layout": _layout,
    "steps": _steps,
    "noise": _noise,
    "conditioning": _conditioning,
    "weights": _none,
    "seed": _none,
}
"""By name what `--only` chooses. Weights are loaded anew, and the seed's template is none of the base's."""
