"""Questions as a canvas a masked-diffusion model fills in, and the probabilities that its slots hold. No torch."""

from openjev_server.canvas.compile import CanvasTooWide, CompiledRequest, Compiler, Layout, SlotReadout, Usage
from openjev_server.canvas.readout import read_greedily, read_out
from openjev_server.canvas.template import Control, Form, Keys, Noise, Spelling, Template
from openjev_server.canvas.templates import (
    NANO_LABEL,
    NANO_LITERAL,
    OPENJEV_LITERAL,
    SEED,
    TEMPLATES,
    UnknownTemplate,
    template_for,
)
from openjev_server.canvas.tokenizer import TextTokenizer, UnknownControlToken

__all__ = [
    "NANO_LABEL",
    "NANO_LITERAL",
    "OPENJEV_LITERAL",
    "SEED",
    "TEMPLATES",
    "CanvasTooWide",
    "CompiledRequest",
    "Compiler",
    "Control",
    "Form",
    "Keys",
    "Layout",
    "Noise",
    "SlotReadout",
    "Spelling",
    "Template",
    "TextTokenizer",
    "UnknownControlToken",
    "UnknownTemplate",
    "Usage",
    "read_greedily",
    "read_out",
    "template_for",
]
