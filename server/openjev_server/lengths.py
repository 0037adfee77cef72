"""Seeing that a text is far too long without tokenizing all of it: 10 MB would keep a core busy for a minute."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from openjev_server.canvas.schema import as_text
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.questions import Choice, Noul, Score
from openjev_server.wire.request import WireRequest

__all__ = ["least_tokens", "surely_longer", "texts_of"]

USUAL_CHARACTERS_PER_TOKEN = 8
"""Shorter texts are left to the compiler, which counts exactly; prose has about four characters a token."""
CHUNK_CHARACTERS = 65_536
CUT_TOKENS = 64
"""More tokens than cutting a text in two can add: no token is much longer than this many characters."""


LEAST_TOKENS_PER_QUESTION = 2
"""Something that is asked, and the slot of the answer."""


def least_tokens(request: WireRequest) -> int:
    """What the request takes at the very least, whatever the template."""
    return LEAST_TOKENS_PER_QUESTION * len(request.questions)


def texts_of(request: WireRequest) -> Iterator[str]:
    """Every text of a request that becomes tokens."""
    yield as_text(request.state)
    for question in request.questions:
        yield as_text(question.instructions)
        match question:
            case Noul(true=true, false=false):
                yield from (as_text(true), as_text(false))
            case Choice(options=options):
                for option in options:
                    yield from (option.name, as_text(option.description))
            case Score(levels=levels):
                yield from map(as_text, levels)


def surely_longer(tokenizer: TextTokenizer, texts: Iterable[str], limit: int) -> bool:
    """Whether the texts take more than `limit` tokens; False also when that is not obvious.

    Counts piece by piece and stops at the limit, allowing for what the cuts themselves may have added.
    """
    every = list(texts)
    if sum(map(len, every)) <= USUAL_CHARACTERS_PER_TOKEN * limit:
        return False
    least = 0
    for text in every:
        for start in range(0, len(text), CHUNK_CHARACTERS):
            tokens = len(tokenizer.encode(text[start : start + CHUNK_CHARACTERS]))
            least += max(0, tokens - CUT_TOKENS)
            if least > limit:
                return True
    return False
