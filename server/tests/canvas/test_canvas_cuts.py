"""Texts in pieces have the tokens of the whole, and tokenizers that could tell the difference are left alone."""

from __future__ import annotations

import random
from string import ascii_lowercase

import pytest
from canvas_tokenizers import CORPUS, GEMMA_CONTROLS, byte_level, leaky, words
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.canvas.cuts import Cuts, cuts_of
from openjev_server.canvas.tokenizer import TextTokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

PIECE = st.text(st.sampled_from("abez \n\t\u2581\u0120'9.é😀<>|")) | st.sampled_from(
    ["the user said ", "n't  answer", "<bos> "]
)


def gemma_like() -> Tokenizer:
    """As Gemma's: blanks become U+2581 and nothing separates words, so that some tokens reach across blanks."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Replace("\u2581", " ")
    names = ["<unk>", *GEMMA_CONTROLS, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=len(names) + 120, special_tokens=names, show_progress=False)
    tokenizer.train_from_iterator(["is it a zebra", *CORPUS] * 5, trainer)
    return tokenizer


@pytest.fixture(scope="module", params=["nano", "bytes", "gemma"])
def tokenizer(request: pytest.FixtureRequest, nano: TextTokenizer) -> Tokenizer:
    return {"nano": nano._tokenizer, "bytes": byte_level(GEMMA_CONTROLS), "gemma": gemma_like()}[request.param]


@given(parts=st.lists(PIECE, min_size=1, max_size=400), seed=st.integers(0, 99))
def test_pieces_have_the_tokens_of_the_whole(tokenizer: Tokenizer, parts: list[str], seed: int) -> None:
    text = "".join(random.Random(seed).choices(parts, k=1200))
    alone, many = TextTokenizer(tokenizer, cores=1), TextTokenizer(tokenizer, cores=16)
    assert many.encode_batch([text, "short"]) == [alone.encode(text), alone.encode("short")]


def test_pieces_join_to_the_text(nano: TextTokenizer) -> None:
    cuts = cuts_of(nano._tokenizer)
    text = "some words, and then again some; " * 50
    pieces = cuts.pieces(text, 7)
    assert ("".join(pieces), len(pieces)) == (text, 7)
    assert all(piece.startswith(" ") for piece in pieces[1:])
    assert max(map(len, pieces)) < 2 * len(text) / 7
    assert [cuts.pieces(t, 7) for t in ("", "a", "one", "1 2 3 4 5")] == [[""], ["a"], ["one"], ["1 2 3 4 5"]]


def test_letters_that_a_token_joins_with_a_blank_are_no_place_to_cut(nano: TextTokenizer) -> None:
    assert cuts_of(nano._tokenizer).letters == set(ascii_lowercase)
    joined = cuts_of(gemma_like()).letters
    assert "z" in joined
    assert not {"r", "s", "t"} & joined
    added = byte_level(GEMMA_CONTROLS)
    added.add_tokens([AddedToken("at once", special=False)])
    assert cuts_of(added).letters == set(ascii_lowercase) - {"t"}


def strange(change: str) -> Tokenizer:
    tokenizer = byte_level(GEMMA_CONTROLS)
    match change:
        case "lowercase":
            tokenizer.normalizer = normalizers.Lowercase()
        case "prefix":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        case "no words":
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        case "strips":
            tokenizer.add_tokens([AddedToken("x", rstrip=True, special=False)])
        case "dropout":
            tokenizer.model = models.BPE(dropout=0.1)
    return tokenizer


@pytest.mark.parametrize("change", ["lowercase", "prefix", "no words", "strips", "dropout"])
def test_unknown_forms_are_not_cut(change: str) -> None:
    assert not cuts_of(strange(change)).letters
    assert Cuts(()).pieces("a b c", 3) == ["a b c"]


def test_other_models_are_not_cut() -> None:
    assert not cuts_of(words("a")._tokenizer).letters
    assert not cuts_of(leaky()).letters
