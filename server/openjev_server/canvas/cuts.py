"""Where a text may be cut so that the tokens of the pieces, one after the other, are the tokens of the text.

A long text is one thread's work for a tokenizer, its pieces are several threads'. Cuts lie before a blank that follows
a lowercase ASCII letter. That is exact for byte-pair encoding when no token of the vocabulary and no added token has
that letter and a blank in this order: no merge can then reach across the cut, and merges on one side of it do not ask
what is on the other. What comes before the merges must not look across either, so that only the forms that are known
not to are taken: blanks replaced by U+2581 and no words (Gemma), or GPT-2's words (`ByteLevel`), whose pattern begins
a new word at such a blank. For any other tokenizer there are no cuts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable
from string import ascii_lowercase
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

__all__ = ["Cuts", "cuts_of"]

GEMMA_BLANK, BYTE_BLANK = "\u2581", "\u0120"
GEMMA_NORMALIZER = {"type": "Replace", "pattern": {"String": " "}, "content": GEMMA_BLANK}
NO_WORDS = (None, {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False})
"""The second splits at blanks, of which the normalizer has left none."""


class Cuts:
    """Cuts texts before blanks that follow one of `letters`."""

    def __init__(self, letters: Iterable[str]) -> None:
        self._letters = frozenset(letters)
        self._place = re.compile(f"(?<=[{''.join(sorted(self._letters))}]) ") if self._letters else None

    @property
    def letters(self) -> frozenset[str]:
        """The letters behind which it cuts; none for a tokenizer that is not known to allow it."""
        return self._letters

    def pieces(self, text: str, count: int) -> list[str]:
        """At most `count` pieces of about equal length, which joined are the text."""
        if self._place is None:
            return [text]
        pieces = []
        start = 0
        for number in range(1, count):
            found = self._place.search(text, max(start + 1, number * len(text) // count))
            if found is None:
                break
            pieces.append(text[start : found.start()])
            start = found.start()
        return [*pieces, text[start:]]


def cuts_of(tokenizer: Tokenizer) -> Cuts:
    """The cuts that this tokenizer, which neither truncates nor pads, allows."""
    vocab = tokenizer.get_vocab(with_added_tokens=True)
    added = tokenizer.get_added_tokens_decoder().values()
    blank = _blank(tokenizer, vocab)
    if blank is None or any(token.lstrip or token.rstrip or token.single_word for token in added):
        return Cuts(())
    across = re.compile(f"([a-z])[ {blank}]")
    return Cuts(set(ascii_lowercase) - {letter for token in vocab for letter in across.findall(token)})


def _blank(tokenizer: Tokenizer, vocab: Container[str]) -> str | None:
    """What a blank is in the vocabulary of a tokenizer that can be cut; None for any other."""
    model = tokenizer.model
    if not isinstance(model, BPE) or model.dropout or model.ignore_merges:
        return None
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    normalizer, words = (
        part and json.loads(part.__getstate__()) for part in (tokenizer.normalizer, tokenizer.pre_tokenizer)
    )
    if normalizer == GEMMA_NORMALIZER and words in NO_WORDS:
        # A blank that is a token never joins an unknown one before it.
        return GEMMA_BLANK if GEMMA_BLANK in vocab else None
    return BYTE_BLANK if normalizer is None and _byte_level(words) else None


def _byte_level(words: dict[str, Any] | None) -> bool:
    """GPT-2's words, with or without every digit a word of its own."""
    match words:
        case {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, last]}:
            return _byte_level(last)
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return True
    return False
