"""Text to token ids, with a wall between what a user writes and what controls the model.

A control token (`<bos>`, `<|turn>`, `<o3>` ...) can be placed by a template and by nothing else: user text that
spells one stays text. The wall is checked on the ids that come out, not on the text that goes in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from openjev_server.canvas.cuts import cuts_of

__all__ = ["TextTokenizer", "UnknownControlToken"]

REPLACEMENT = "\ufffd"
FEW_CORES = 4
PARALLEL_CHARACTERS = {True: 16_384, False: 1024}
"""From here on texts go to the tokenizer's threads, without character offsets: a third less time for one long text.
On few cores handing less over costs more (2 to 5 ms while both of 2 are busy) than it saves."""
PIECE_CHARACTERS = 512
"""The least that is worth a thread of its own."""
_SURROGATE = re.compile("[\ud800-\udfff]")


class UnknownControlToken(LookupError):
    """A template needs a control token that this tokenizer does not have."""


class TextTokenizer:
    """Encodes user text; thread-safe once built.

    Takes the tokenizer over: truncation and padding are switched off, and special tokens are read as plain text.
    Lone surrogates, which have no UTF-8 form, are read as U+FFFD. The model's own "unknown" token is no control
    token: it is what some tokenizers make of characters that they lack.
    """

    def __init__(self, tokenizer: Tokenizer, *, controls: Iterable[str] = (), cores: int | None = None) -> None:
        """`cores` None asks the machine."""
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._vocab: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
        special = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        named = {self.control(name) for name in controls}
        unknown = self._vocab.get(getattr(tokenizer.model, "unk_token", None) or "")
        self._controls = frozenset((special - {unknown}) | named)
        reserved = special | named
        self._plain = np.array(sorted(i for i in self._vocab.values() if i not in reserved), dtype=np.int32)
        self._plain.setflags(write=False)
        self._cores = cores or _cores()
        self._cuts = cuts_of(tokenizer)

    @classmethod
    def from_directory(cls, path: str | Path) -> TextTokenizer:
        """Reads `tokenizer.json` of a checkpoint directory. Raises FileNotFoundError without one."""
        file = Path(path) / "tokenizer.json"
        if not file.is_file():
            raise FileNotFoundError(f"no tokenizer.json in {path}")
        return cls(Tokenizer.from_file(str(file)))

    def guarding(self, controls: Iterable[str]) -> TextTokenizer:
        """The same tokenizer with these tokens behind the wall too, even where its file does not call them special."""
        return TextTokenizer(self._tokenizer, controls=controls, cores=self._cores)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id that a template or a text can yield."""
        return max(self._vocab.values()) + 1

    @property
    def controls(self) -> frozenset[int]:
        """Ids that no text yields."""
        return self._controls

    @property
    def plain(self) -> NDArray[np.int32]:
        """Every id that is neither a control nor a special token, ascending: what noise is drawn from."""
        return self._plain

    def control(self, name: str) -> int:
        """The id of a control token. Raises UnknownControlToken."""
        token = self._vocab.get(name)
        if token is None:
            raise UnknownControlToken(f"the tokenizer has no token {name!r}")
        return token

    def has(self, name: str) -> bool:
        return name in self._vocab

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, control tokens included by name."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=False)
        return text

    def names(self) -> dict[int, str]:
        """The vocabulary's own spelling of every id."""
        return {i: name for name, i in self._vocab.items()}

    def encode(self, text: str) -> list[int]:
        """Token ids of user text, without a beginning or end of its own; never a control id."""
        return self.encode_batch((text,))[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of every text, in parallel where that pays."""
        clean = [text if text.isascii() else _SURROGATE.sub(REPLACEMENT, text) for text in texts]
        if sum(map(len, clean)) < PARALLEL_CHARACTERS[self._cores < FEW_CORES]:
            batch = [self._tokenizer.encode(text, add_special_tokens=False).ids for text in clean]
        else:
            batch = self._in_parallel(clean)
        return [
            ids if self._controls.isdisjoint(ids) else self._encode_apart(text)
            for text, ids in zip(clean, batch, strict=True)
        ]

    def _in_parallel(self, texts: list[str]) -> list[list[int]]:
        """Long texts in pieces."""
        cut = [self._cuts.pieces(text, min(self._cores, len(text) // PIECE_CHARACTERS)) for text in texts]
        pieces = [piece for parts in cut for piece in parts]
        encoded = iter(self._tokenizer.encode_batch_fast(pieces, add_special_tokens=False))
        return [list(chain.from_iterable(next(encoded).ids for _ in parts)) for parts in cut]

    def _encode_apart(self, text: str) -> list[int]:
        """Cuts every spelling of a control token after its first character until none is left.

        A single character that is itself a control token is read as U+FFFD, or as nothing where that is one too.
        """
        done: list[int] = []
        pieces = [text]
        while pieces:
            piece = pieces.pop()
            encoding = self._tokenizer.encode(piece, add_special_tokens=False)
            if self._controls.isdisjoint(encoding.ids):
                done += encoding.ids
            elif len(piece) <= 1:
                pieces += [REPLACEMENT] if piece != REPLACEMENT else []
            else:
                spans = zip(encoding.ids, encoding.offsets, strict=True)
                cuts = {start + 1 for token, (start, _) in spans if token in self._controls}
                inner = sorted(cut for cut in cuts if 0 < cut < len(piece)) or [len(piece) // 2]
                edges = [0, *inner, len(piece)]
                pieces += [piece[a:b] for a, b in zip(edges[-2::-1], edges[:0:-1], strict=True)]
        return done


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
