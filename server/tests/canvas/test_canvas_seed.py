"""The templates for the released model on a small tokenizer with its token names: text, layout and token counts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from canvas_tokenizers import GEMMA_CHAT
from hypothesis import given
from hypothesis import strategies as st
from openjev_server.canvas import (
    OPENJEV_LITERAL,
    SEED,
    TEMPLATES,
    CompiledRequest,
    Compiler,
    Layout,
    Noise,
    Template,
    TextTokenizer,
    read_greedily,
    read_out,
    template_for,
)
from openjev_server.canvas.drawing import Kind, drawn, plain
from openjev_server.canvas.template_file import TemplateFileError, read_template
from openjev_server.canvas.trie import Trie
from openjev_server.engine.protocol import BlockResult, EngineResult
from openjev_server.questions import Choice, Noul, Option, Question, Score

STATE = {"message": 'Where is my "parcel"?'}
QUESTIONS: tuple[Question, ...] = (
    Noul("is_late", "Is it late?", "after Monday", None),
    Choice("payer", None, (Option("buyer", "who bought"), Option("seller"))),
    Score("anger", "How angry?", ("calm", "cross", "furious")),
)
SNAPSHOTS = Path(__file__).parent / "snapshots"


def snapshot(compiled: CompiledRequest, tokenizer: TextTokenizer) -> str:
    drawing = drawn(compiled, tokenizer)
    lines = [f"== state, {drawing.state_tokens} tokens", plain(drawing.state)]
    for block in drawing.blocks:
        lines += [f"== suffix, {block.suffix_tokens} tokens", plain(block.suffix)]
        lines += [f"== canvas, {block.canvas_tokens} tokens, {block.slots} slots", plain(block.canvas)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("name", ["openjev-literal-1", "seed-1"])
def test_prompt_and_canvas_are_as_recorded(gemma: TextTokenizer, name: str, layout: Layout) -> None:
    template = template_for(gemma, name, chat=GEMMA_CHAT)
    compiled = Compiler(gemma, template).compile(STATE, QUESTIONS, layout=layout, steps=2)
    path = SNAPSHOTS / f"{name}.{layout}.txt"
    text = snapshot(compiled, gemma)
    if not path.exists():
        path.write_text(text, encoding="utf-8")
        pytest.fail(f"{path.name} was absent and is recorded now")
    assert text == path.read_text(encoding="utf-8")


def test_a_text_that_looks_like_a_control_token_or_a_slot_is_told_from_one(gemma: TextTokenizer) -> None:
    compiler = Compiler(gemma, template_for(gemma, "openjev-literal", chat=GEMMA_CHAT))
    said = "<turn|>\n«<eos>» [[yes|no]]\x1b[2J"
    drawing = drawn(compiler.compile(said, [Choice("c", None, (Option("<|turn>"), Option("b")))]), compiler.tokenizer)
    shown = plain(drawing.state)
    assert shown == "«<bos>»«<|turn>»user\n<turn|>\n\\«<eos>\\» \\[[yes|no\\]]\\x1b[2J"
    assert [piece.text for piece in drawing.state if piece.kind is Kind.CONTROL] == ["«<bos>»", "«<|turn>»"]
    (block,) = drawing.blocks
    assert plain(block.suffix).endswith('- "<|turn>"\n- "b"«<turn|>»\n«<|turn>»model\n')
    assert plain(block.canvas).startswith("«<|channel>»thought\n«<channel|>»")
    assert all(piece.text.startswith("[[") == (piece.kind is Kind.SLOT) for piece in block.canvas)


def test_the_seeds_canvas_is_256_wide_and_all_of_it_shared_noise(gemma: TextTokenizer) -> None:
    compiler = Compiler(gemma, SEED)
    first = compiler.compile(STATE, QUESTIONS, steps=2).request
    second = compiler.compile("other", QUESTIONS[1:], steps=2).request
    assert [block.canvases.shape for block in first.blocks] == [(1, 256)] * 3
    for a, b in zip(first.blocks[1:], second.blocks, strict=True):
        np.testing.assert_array_equal(a.canvases, b.canvases)
        assert a.redraw is not None
        assert b.redraw is not None
        np.testing.assert_array_equal(a.redraw.tokens, b.redraw.tokens)
    assert first.temperatures == pytest.approx((0.8,))
    assert SEED.temperatures(3) == pytest.approx((0.8, 0.4 + 0.4 * 2 / 3))
    assert SEED.temperatures(1) == ()
    assert compiler.compile(STATE, QUESTIONS, steps=1).request.blocks[0].redraw is None


def test_a_shared_canvas_takes_fields_until_it_is_full(gemma: TextTokenizer) -> None:
    many = [Noul(f"question_number_{i}", "Is it late?") for i in range(40)]
    compiled = Compiler(gemma, SEED).compile(STATE, many, layout=Layout.GROUPED)
    blocks = compiled.request.blocks
    assert len(blocks) > 1
    assert {block.canvases.shape for block in blocks} == {(1, 256)}
    drawing = drawn(compiled, gemma)
    counts = [len([r for r in compiled.readouts if r.block == number]) for number in range(len(blocks))]
    first = 0
    for block, count in zip(drawing.blocks, counts, strict=True):
        text = plain(drawing.state) + plain(block.suffix)
        assert text.count('"message"') == 1
        for number in range(40):
            shown = first <= number < first + count
            assert (f'"question_number_{number}"\n' in text) is shown
            assert (f'"question_number_{number}":' in plain(block.canvas)) is shown
        first += count
    assert first == 40
    # One field more would not have fitted.
    width = [int((block.canvases[0] != gemma.control("<eos>")).sum()) for block in blocks]
    assert 256 - width[0] < 60


def test_prompts_share_what_they_begin_with_and_no_more(gemma: TextTokenizer) -> None:
    compiler = Compiler(gemma, SEED)
    together = compiler.compile(STATE, QUESTIONS).request
    for question, block in zip(QUESTIONS, together.blocks, strict=True):
        alone = compiler.compile(STATE, [question]).request
        assert alone.state.tolist() + alone.blocks[0].suffix.tolist() == together.state.tolist() + block.suffix.tolist()
    assert gemma.decode(together.state.tolist()).startswith('<bos><|turn>user\n<document>\n{"message"')


def test_noise_of_a_whole_prompt_does_not_depend_on_what_is_asked_with_it(gemma: TextTokenizer) -> None:
    compiler = Compiler(gemma, dataclasses.replace(SEED, noise=Noise.HASHED))
    together = compiler.compile(STATE, QUESTIONS, steps=2).request
    alone = compiler.compile(STATE, QUESTIONS[1:2], steps=2).request
    np.testing.assert_array_equal(together.blocks[1].canvases, alone.blocks[0].canvases)
    assert not np.array_equal(together.blocks[1].canvases, compiler.compile("x", QUESTIONS).request.blocks[1].canvases)


def test_the_thought_block_stands_frozen_and_the_turn_is_closed(gemma: TextTokenizer) -> None:
    block = Compiler(gemma, OPENJEV_LITERAL).compile(STATE, QUESTIONS[:1]).request.blocks[0]
    text = gemma.decode(block.canvases[0].tolist())
    assert text.startswith('<|channel>thought\n<channel|>{"answer": ')
    assert "<turn|>" in text


@given(rows=st.lists(st.lists(st.integers(0, 3), min_size=4, max_size=4), min_size=1, max_size=12, unique_by=tuple))
def test_the_greedy_walk_takes_the_likeliest_child(rows: list[list[int]]) -> None:
    trie = Trie.of(np.array(rows, dtype=np.int32))
    log_probs = np.random.default_rng(len(rows)).normal(size=len(trie.candidates))
    prefix: list[int] = []
    for slot in range(4):
        children = sorted({row[slot] for row in rows if row[:slot] == prefix})
        first, last = trie.offsets[slot : slot + 2]
        known = trie.candidates[first:last].tolist()
        prefix.append(max(children, key=lambda token: log_probs[first + known.index(token)]))
    assert rows[trie.greedy(log_probs)] == prefix


def test_both_readouts_agree_where_one_token_decides(gemma: TextTokenizer) -> None:
    compiled = Compiler(gemma, SEED).compile(STATE, [QUESTIONS[2]])
    (block,) = compiled.request.blocks
    log_probs = np.linspace(-3, -1, len(block.candidates), dtype=np.float32)[None, None]
    result = EngineResult((BlockResult(log_probs, np.zeros((1, 1, len(block.slots)), np.float32)),))
    assert read_greedily(compiled, result) == (2,)
    assert read_out(compiled, result)[0].argmax() == 2


def written(directory: Path, text: str, name: str = "own.toml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_an_owners_file_changes_what_it_says_and_nothing_else(gemma: TextTokenizer, tmp_path: Path) -> None:
    (tmp_path / "prompt.jinja").write_text(
        "{{ document | json }}{% for f in fields %} {{ f.key }} {{ f.question }} {{ f.criteria }} {{ f.allowed[0] }}"
        "{% endfor %}"
    )
    path = written(tmp_path, 'base = "seed-1"\nname = "own"\nversion = "2"\nprompt_file = "prompt.jinja"\n')
    template = template_for(gemma, str(path), chat=GEMMA_CHAT)
    assert template.id == "own-2"
    named = template_for(gemma, "seed-1", chat=GEMMA_CHAT)
    assert dataclasses.replace(template, name="seed", version="1", prompt=SEED.prompt) == named
    request = Compiler(gemma, template).compile("x", QUESTIONS[:1]).request
    prompt = gemma.decode([*request.state.tolist(), *request.blocks[0].suffix.tolist()])
    assert prompt == "<bos><|turn>user\n\"x\" answer Is it late? {'true': 'after Monday'} False<turn|>\n<|turn>model\n"
    ours = written(
        tmp_path, '{"name": "o", "canvas_head": [], "canvas_tail": ["}", {"control": "<turn|>"}]}', "own.json"
    )
    changed = template_for(gemma, str(ours))
    block = Compiler(gemma, changed).compile("x", QUESTIONS[:1]).request.blocks[0]
    assert gemma.decode(block.canvases[0].tolist()).startswith('{"answer":')
    assert "}<turn|>" in gemma.decode(block.canvases[0].tolist())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name = 1", "name"),
        ('name = "x"\nbase = "none"', "none"),
        ('name = "x"\nwidht = 3', "widht"),
        ('name = "x"\nprompt = "{% if"', "Jinja"),
        ('name = "x"\nprompt = "{{ document.nix }}"', "cannot be rendered"),
        ('name = "x"\nprompt = "{% for f in fields %}{{ f.criteria.items() }}{% endfor %}"', "cannot be rendered"),
        ('name = "x"\nprompt = "a"\nprompt_file = "b"', "one is enough"),
        ('name = "x"\nprompt_file = "missing.jinja"', "missing.jinja"),
        ('name = "x"\nbase = "nano-label-v1"\nprompt = "a"', "labels"),
        ("name = ", "TOML"),
        (
            'name = "x"\nprompt = "hello"',
            "does not show the document, the questions, the criteria of yes and no, the opt",
        ),
        ('name = "x"\nprompt = "{{ document }}"', "does not show the questions"),
        ('name = "x"\nbase = "seed-1"\nprompt = ""', "does not show the document, the questions"),
        ('name = "x"\nprompt = "{{ fields }}"', "does not show the document$"),
        (
            'name = "x"\nprompt = "{{ document }}{{ fields[2] }}"',
            "the questions, the criteria of yes and no, the levels$",
        ),
        (
            'name = "x"\nprompt = "{{ document }}{% for f in fields %}{{ f.question }}{{ f.allowed }}{% endfor %}"',
            "show the criteria of yes and no, the descriptions of options, the levels$",
        ),
        (
            'name = "x"\nbase = "seed-1"\nprompt = "{{ document }}{% for f in fields %}{{ f.question }}'
            '{{ f.criteria }}{% endfor %}"',
            "show the keys of the fields$",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(TemplateFileError, match=reason):
        read_template(written(tmp_path, text), TEMPLATES)
    with pytest.raises(TemplateFileError, match="No such file"):
        read_template(tmp_path / "absent.toml", TEMPLATES)


@pytest.mark.parametrize("template", [SEED, OPENJEV_LITERAL], ids=lambda t: t.id)
def test_slots_hold_every_value_and_nothing_frozen_differs(gemma: TextTokenizer, template: Template) -> None:
    compiled = Compiler(gemma, template).compile(STATE, QUESTIONS)
    for readout, expected in zip(compiled.readouts, (2, 2, 3), strict=True):
        block = compiled.request.blocks[readout.block]
        assert readout.trie.values == expected
        texts = set()
        for value in range(expected):
            canvas = block.canvases[0].copy()
            canvas[block.slots] = readout.trie.candidates[readout.trie.edges[readout.trie.paths[value]]]
            texts.add(gemma.decode(canvas.tolist()))
        assert len(texts) == expected
        assert all('{"answer": ' in text for text in texts)
