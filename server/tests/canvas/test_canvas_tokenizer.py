from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from canvas_tokenizers import leaky, words
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.canvas import (
    NANO_LABEL,
    NANO_LITERAL,
    OPENJEV_LITERAL,
    Compiler,
    Layout,
    Template,
    TextTokenizer,
    UnknownControlToken,
)
from openjev_server.questions import Choice, Noul, Option, Question, Score
from tokenizers import Tokenizer, models

CASES = [("nano", NANO_LABEL), ("nano", NANO_LITERAL), ("gemma", OPENJEV_LITERAL)]


def tokens_of(compiler: Compiler, text: str, layout: Layout) -> tuple[list[int], int]:
    """The control ids of a request that says `text` everywhere, and how many slots it has."""
    questions: list[Question] = [
        Choice("c", text, (Option(text + "a", text), Option(text + "b"))),
        Score("s", {"x": text}, (text, [text])),
        Noul("n", None, text, text),
    ]
    compiled = compiler.compile(text, questions, layout=layout)
    seen = [int(t) for t in compiled.request.state]
    slots = 0
    for block in compiled.request.blocks:
        seen += block.suffix.tolist()
        seen += block.canvases[0].tolist()
        seen += block.candidates.tolist()
        slots += len(block.slots)
    return [t for t in seen if t in compiler.tokenizer.controls], slots


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(("fixture", "template"), CASES, ids=lambda v: v.id if isinstance(v, Template) else v)
def test_control_tokens_in_user_text_stay_text(
    fixture: str, template: Template, layout: Layout, request: pytest.FixtureRequest
) -> None:
    tokenizer: TextTokenizer = request.getfixturevalue(fixture)
    # Wide enough for one shared canvas: where fields are split depends on their length.
    wide = dataclasses.replace(template, grouped_width=100_000)
    compiler = Compiler(tokenizer, wide, max_canvas_tokens=20_000)
    names = [name for name in tokenizer.names().values() if tokenizer.control(name) in tokenizer.controls]
    assert len(names) == len(tokenizer.controls) > 6
    for name in names:
        assert tokenizer.controls.isdisjoint(tokenizer.encode(f"{name} a{name}b {name}"))
    for text in [*names[:12], names[-1], "".join(names)]:
        placed, slots = tokens_of(compiler, text, layout)
        plain, _ = tokens_of(compiler, "plain", layout)
        # Fill differs with the width of the canvas; everything else is what the template places by itself.
        fill = tokenizer.control(template.canvas_fill)
        assert [t for t in placed if t != fill] == [t for t in plain if t != fill]
        assert slots > 0


@given(
    text=st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=30),
    name=st.sampled_from(["<bos>", "<state>", "<answer>", "<|x|>", "~"]),
)
def test_a_tokenizer_that_leaks_is_cut_apart(text: str, name: str) -> None:
    open_tokenizer = leaky()
    assert open_tokenizer.token_to_id(name) in open_tokenizer.encode(name, add_special_tokens=False).ids
    wall = TextTokenizer(leaky(), controls=["<|x|>"])
    ids = wall.encode(f"{text}{name}{name}x")
    assert wall.controls.isdisjoint(ids)
    assert wall.control("x") in ids


def test_a_leaking_token_keeps_its_characters() -> None:
    wall = TextTokenizer(leaky(), controls=["<|x|>"])
    assert [wall.names()[i] for i in wall.encode("a<bos>b<|x|>~")] == list("a<bos>b<|x|>\ufffd")


@given(st.text(alphabet=st.characters(), max_size=40) | st.just("a\ud800b\udfff"))
def test_any_text_encodes(text: str) -> None:
    tokenizer = words("a")
    surrogates = "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text)
    assert tokenizer.encode(text) == tokenizer.encode(surrogates)


def test_lone_surrogates_are_replaced(nano: TextTokenizer) -> None:
    assert nano.encode("a\ud83d b") == nano.encode("a\ufffd b")
    assert nano.encode_batch(["\udc00", "x"]) == [nano.encode("\ufffd"), nano.encode("x")]


def test_nothing_is_truncated_or_padded() -> None:
    inner = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    inner.enable_truncation(2)
    inner.enable_padding(length=8)
    assert TextTokenizer(inner).encode("a") == [1]


def test_missing_control_token_and_directory(gemma: TextTokenizer, tmp_path: Path) -> None:
    with pytest.raises(UnknownControlToken, match="<o0>"):
        gemma.control("<o0>")
    with pytest.raises(UnknownControlToken):
        Compiler(gemma, NANO_LABEL)
    with pytest.raises(FileNotFoundError):
        TextTokenizer.from_directory(tmp_path)


def test_threads_agree(nano: TextTokenizer) -> None:
    texts = [f"text {i} <o{i}>" for i in range(64)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(nano.encode, texts)) == [nano.encode(text) for text in texts]
