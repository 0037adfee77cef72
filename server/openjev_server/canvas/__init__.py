"""Questions as a canvas a masked-diffusion model fills in, and the probabilities that its slots hold. No torch."""

from .compile import CanvasTooWide, CompiledRequest, Compiler, Layout, SlotReadout, Usage
from .readout import read_out
from .template import Control, Form, Spelling, Template
from .templates import NANO_LABEL, NANO_LITERAL, OPENJEV_LITERAL, TEMPLATES, UnknownTemplate, template_for
from .tokenizer import TextTokenizer, UnknownControlToken

__all__ = [
    "NANO_LABEL",
    "NANO_LITERAL",
    "OPENJEV_LITERAL",
    "TEMPLATES",
    "CanvasTooWide",
    "CompiledRequest",
    "Compiler",
    "Control",
    "Form",
    "Layout",
    "SlotReadout",
    "Spelling",
    "Template",
    "TextTokenizer",
    "UnknownControlToken",
    "UnknownTemplate",
    "Usage",
    "read_out",
    "template_for",
]
