"""A compiled request as people read it: the prompt's text, and canvases with their slots marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from openjev_server.canvas.compile import CompiledRequest
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.engine.protocol import CanvasBlock

__all__ = ["BlockDrawing", "Drawing", "Piece", "drawn"]

SHOWN_CANDIDATES = 6
REPEATED = 4
"""From so many equal frozen tokens in a row on, their number is given instead."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of canvas: frozen text, or one slot's candidates."""

    text: str
    slot: bool


@dataclass(frozen=True, slots=True)
class BlockDrawing:
    suffix: str
    suffix_tokens: int
    canvas: tuple[Piece, ...]
    canvas_tokens: int
    slots: int

    def plain(self) -> str:
        """The canvas with slots in double brackets."""
        return "".join(f"[[{piece.text}]]" if piece.slot else piece.text for piece in self.canvas)


@dataclass(frozen=True, slots=True)
class Drawing:
    state: str
    """What all questions share."""
    state_tokens: int
    blocks: tuple[BlockDrawing, ...]


def drawn(compiled: CompiledRequest, tokenizer: TextTokenizer) -> Drawing:
    """Control tokens by name. A slot shows the candidates it is read over, the first six of them."""
    request = compiled.request
    return Drawing(
        state=tokenizer.decode(request.state.tolist()),
        state_tokens=len(request.state),
        blocks=tuple(
            BlockDrawing(
                suffix=tokenizer.decode(block.suffix.tolist()),
                suffix_tokens=len(block.suffix),
                canvas=tuple(_pieces(block, tokenizer)),
                canvas_tokens=block.canvases.shape[1],
                slots=len(block.slots),
            )
            for block in request.blocks
        ),
    )


def _pieces(block: CanvasBlock, tokenizer: TextTokenizer) -> Iterator[Piece]:
    places = {int(place): number for number, place in enumerate(block.slots)}
    frozen: list[int] = []
    for place, token in enumerate(block.canvases[0].tolist()):
        if place not in places:
            frozen.append(token)
            continue
        yield from _frozen(frozen, tokenizer)
        frozen = []
        number = places[place]
        candidates = block.candidates[block.offsets[number] : block.offsets[number + 1]].tolist()
        shown = [tokenizer.decode([candidate]) for candidate in candidates[:SHOWN_CANDIDATES]]
        more = len(candidates) - len(shown)
        yield Piece("|".join(shown) + (f"|+{more}" if more else ""), slot=True)
    yield from _frozen(frozen, tokenizer)


def _frozen(tokens: Sequence[int], tokenizer: TextTokenizer) -> Iterator[Piece]:
    run: list[int] = []
    for token, group in groupby(tokens):
        count = len(list(group))
        if count < REPEATED:
            run += [token] * count
            continue
        if run:
            yield Piece(tokenizer.decode(run), slot=False)
            run = []
        yield Piece(f"{tokenizer.decode([token])}*{count}", slot=False)
    if run:
        yield Piece(tokenizer.decode(run), slot=False)
