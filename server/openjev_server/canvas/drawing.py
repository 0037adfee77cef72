"""A compiled request as people read it: the prompt and the canvases, with control tokens and slots marked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise

from openjev_server.canvas.compile import CompiledRequest
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.engine.protocol import CanvasBlock, Int32

__all__ = ["LEGEND", "BlockDrawing", "Drawing", "Kind", "Piece", "drawn", "plain"]

SHOWN_CANDIDATES = 6
REPEATED = 4
"""From so many equal frozen tokens of a canvas in a row on, their number is given instead."""
LEGEND = "\u00ab \u00bb: a control token, [[ ]]: a slot; a backslash before such a mark: it is text"
_MARKS = re.compile("[\u00ab\u00bb]|\\[\\[|\\]\\]")
_STEERING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
"""Control characters, which would steer a terminal; the line feed is shown as what it does."""


class Kind(StrEnum):
    TEXT = "text"
    CONTROL = "control"
    """One control token, or a row of equal ones."""
    SLOT = "slot"
    """What is read in one slot."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of tokens of one kind, marked: nothing that a text spells looks like a control token or a slot."""

    text: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class BlockDrawing:
    suffix: tuple[Piece, ...]
    suffix_tokens: int
    canvas: tuple[Piece, ...]
    canvas_tokens: int
    slots: int


@dataclass(frozen=True, slots=True)
class Drawing:
    state: tuple[Piece, ...]
    """What all questions share."""
    state_tokens: int
    blocks: tuple[BlockDrawing, ...]


def plain(pieces: Sequence[Piece]) -> str:
    """The pieces without colours."""
    return "".join(piece.text for piece in pieces)


def drawn(compiled: CompiledRequest, tokenizer: TextTokenizer) -> Drawing:
    """`tokenizer` is the compiler's. A slot shows the candidates it is read over, the first six of them."""
    request = compiled.request
    return Drawing(
        state=tuple(_pieces(request.state, tokenizer)),
        state_tokens=len(request.state),
        blocks=tuple(
            BlockDrawing(
                suffix=tuple(_pieces(block.suffix, tokenizer)),
                suffix_tokens=len(block.suffix),
                canvas=tuple(_canvas(block, tokenizer)),
                canvas_tokens=block.canvases.shape[1],
                slots=len(block.slots),
            )
            for block in request.blocks
        ),
    )


def _canvas(block: CanvasBlock, tokenizer: TextTokenizer) -> Iterator[Piece]:
    edges = [-1, *map(int, block.slots)]
    tokens = block.canvases[0]
    for number, (before, place) in enumerate(pairwise(edges)):
        yield from _pieces(tokens[before + 1 : place], tokenizer, most=REPEATED)
        candidates = block.candidates[block.offsets[number] : block.offsets[number + 1]].tolist()
        shown = [_marked([candidate], tokenizer) for candidate in candidates[:SHOWN_CANDIDATES]]
        more = len(candidates) - len(shown)
        yield Piece(f"[[{'|'.join(shown)}{f'|+{more}' if more else ''}]]", Kind.SLOT)
    yield from _pieces(tokens[edges[-1] + 1 :], tokenizer, most=REPEATED)


def _pieces(tokens: Int32, tokenizer: TextTokenizer, *, most: int | None = None) -> Iterator[Piece]:
    """Control tokens one by one, what is between them in one; rows of `most` and more equal tokens by their number."""
    text: list[int] = []
    for token, group in groupby(tokens.tolist()):
        count = len(list(group))
        control = token in tokenizer.controls
        long = most is not None and count >= most
        if not control and not long:
            text += [token] * count
            continue
        if text:
            yield Piece(_marked(text, tokenizer), Kind.TEXT)
            text = []
        one = _marked([token], tokenizer)
        yield Piece(f"{one}*{count}" if long else one * count, Kind.CONTROL if control else Kind.TEXT)
    if text:
        yield Piece(_marked(text, tokenizer), Kind.TEXT)


def _marked(tokens: Sequence[int], tokenizer: TextTokenizer) -> str:
    """One control token in its marks, or text whose own marks are marked as text."""
    if len(tokens) == 1 and tokens[0] in tokenizer.controls:
        return f"\u00ab{tokenizer.decode(tokens)}\u00bb"
    text = _MARKS.sub(lambda mark: "\\" + mark[0], tokenizer.decode(tokens))
    return _STEERING.sub(lambda character: ascii(character[0])[1:-1], text)
