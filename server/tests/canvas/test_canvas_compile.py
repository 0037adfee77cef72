from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import numpy as np
import pytest
from canvas_tokenizers import nano_named, words
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from openjev_server.canvas import (
    NANO_LABEL,
    NANO_LITERAL,
    OPENJEV_LITERAL,
    CanvasTooWide,
    CompiledRequest,
    Compiler,
    Layout,
    Template,
    TextTokenizer,
    UnknownControlToken,
    read_out,
)
from openjev_server.engine.protocol import BlockResult, CanvasBlock, EngineResult, NonFiniteLogits
from openjev_server.questions import Choice, Noul, Option, Question, Score, answer_count
from tokenizers import Tokenizer

TEXT = st.text(st.sampled_from('ab"\\ \n\tré😀{}:,<o1>/') | st.characters(codec="utf-8"), max_size=8)
NAMES = st.lists(
    TEXT | st.sampled_from(["", "a", "aa", "aaa", "aab", '"', '"}', "a b", "a  b"]), min_size=1, max_size=9, unique=True
)
LABELLED = st.sampled_from([NANO_LABEL, NANO_LITERAL])


@st.composite
def question(draw: st.DrawFn) -> Question:
    instructions = draw(st.none() | TEXT | st.just({"ask": ["this", 1]}))
    match draw(st.sampled_from(["choice", "noul", "score"])):
        case "choice":
            return Choice("id", instructions, tuple(Option(n, draw(st.none() | TEXT)) for n in draw(NAMES)))
        case "score":
            return Score("id", instructions, tuple(draw(st.lists(TEXT, min_size=1, max_size=10))))
        case _:
            return Noul("id", instructions, draw(st.none() | TEXT), draw(st.none() | TEXT))


def values_of(question: Question) -> list[object]:
    match question:
        case Noul():
            return [True, False]
        case Choice(options=options):
            return [o.name for o in options]
        case Score(levels=levels):
            return list(range(len(levels)))


def answered(compiled: CompiledRequest, seed: int, replicas: int = 1, steps: int = 1) -> EngineResult:
    """What an engine with random logits would say."""
    rng = np.random.default_rng(seed)
    return EngineResult(
        tuple(
            BlockResult(
                rng.normal(-9, 3, (steps, replicas, len(block.candidates))).astype(np.float32),
                np.zeros((steps, replicas, len(block.slots)), dtype=np.float32),
            )
            for block in compiled.request.blocks
        )
    )


def same(a: CanvasBlock, b: CanvasBlock) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(CanvasBlock))


def filled(compiled: CompiledRequest, number: int, answer: int) -> NDArray[np.int32]:
    """The canvas with one answer of one question in its slots."""
    readout = compiled.readouts[number]
    block = compiled.request.blocks[readout.block]
    canvas = block.canvases[0].copy()
    tokens = readout.trie.candidates[readout.trie.edges[readout.trie.paths[answer]]]
    canvas[block.slots[slice(*readout.slots)]] = tokens
    return canvas


def check_protocol(compiled: CompiledRequest, replicas: int) -> None:
    for block in compiled.request.blocks:
        assert block.canvases.shape[0] == replicas
        assert len(block.offsets) == len(block.slots) + 1
        assert block.offsets[0] == 0
        assert block.offsets[-1] == len(block.candidates)
        assert (np.diff(block.slots) > 0).all()
        for a, b in zip(block.offsets, block.offsets[1:], strict=False):
            assert b - a >= 2
            assert (np.diff(block.candidates[a:b]) > 0).all()
        for array in (block.suffix, block.canvases, block.slots, block.candidates, block.offsets):
            assert array.dtype == np.int32


@pytest.fixture(scope="module")
def compilers(nano: TextTokenizer) -> dict[str, Compiler]:
    """By template id."""
    return {template.id: Compiler(nano, template) for template in (NANO_LABEL, NANO_LITERAL)}


@pytest.fixture(scope="module")
def narrow(nano: TextTokenizer) -> dict[str, Compiler]:
    """The same without a cache, and with little room in a grouped canvas."""
    templates = {t.id: dataclasses.replace(t, grouped_width=48) for t in (NANO_LABEL, NANO_LITERAL)}
    return {name: Compiler(nano, template, cache_bytes=0) for name, template in templates.items()}


@pytest.fixture(scope="module")
def uncached(nano: TextTokenizer) -> dict[str, Compiler]:
    return {template.id: Compiler(nano, template, cache_bytes=0) for template in (NANO_LABEL, NANO_LITERAL)}


@pytest.fixture(scope="module")
def tokenizers() -> list[Tokenizer]:
    corpora = [["abc"], ["a b a b aa aaa aab"] * 3, ['{"answer": "a', '"}', '"a"', "<o1>", "ré😀"] * 3]
    return [nano_named(corpus, size) for corpus, size in zip(corpora, (256, 300, 330), strict=True)]


@given(
    question=question(),
    template=LABELLED,
    layout=st.sampled_from(Layout),
    pick=st.integers(0, 2),
    seed=st.integers(0, 99),
)
def test_every_answer_spells_its_value(
    tokenizers: list[Tokenizer], question: Question, template: Template, layout: Layout, pick: int, seed: int
) -> None:
    inner = tokenizers[pick]
    compiled = Compiler(TextTokenizer(inner), template).compile("s", [question], layout=layout, replicas=2, steps=2)
    check_protocol(compiled, 2)
    (p,) = read_out(compiled, answered(compiled, seed, 2, 2))
    assert len(p) == answer_count(question)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert (p >= 0).all()
    spelled = []
    for i, value in enumerate(values_of(question)):
        tokens = filled(compiled, 0, i).tolist()
        text = inner.decode(tokens[: tokens.index(inner.token_to_id("<eos>"))], skip_special_tokens=False)
        spelled.append(text)
        if template is NANO_LITERAL:
            (got,) = json.loads(text, strict=True).values()
            assert got == value
    if len(spelled) == 1:
        assert p.tolist() == [1.0]
    assert len(set(spelled)) == len(spelled)


@given(questions=st.lists(question(), min_size=1, max_size=5), template=LABELLED, data=st.data())
def test_isolated_questions_do_not_see_each_other(
    compilers: dict[str, Compiler],
    uncached: dict[str, Compiler],
    questions: list[Question],
    template: Template,
    data: st.DataObject,
) -> None:
    kept = data.draw(st.permutations(range(len(questions))))[: data.draw(st.integers(1, len(questions)))]
    renamed = [dataclasses.replace(questions[i], id=f"other {i}") for i in kept]
    whole = compilers[template.id].compile({"a": 1}, questions, replicas=2)
    part = uncached[template.id].compile({"a": 1}, renamed, replicas=3)
    for place, i in enumerate(kept):
        one = part.request.blocks[place]
        assert same(dataclasses.replace(one, canvases=one.canvases[:2]), whole.request.blocks[i])
    assert len(whole.request.blocks) == len(questions)
    assert whole.usage.input_tokens == len(whole.request.state) + sum(len(b.suffix) for b in whole.request.blocks)
    assert whole.usage.output_tokens == sum(b.canvases.shape[1] for b in whole.request.blocks)
    assert whole.longest_prompt == len(whole.request.state) + max(len(b.suffix) for b in whole.request.blocks)


@given(questions=st.lists(question(), min_size=1, max_size=12), template=LABELLED, seed=st.integers(0, 99))
def test_grouped_canvases_are_json_with_positional_keys(
    nano: TextTokenizer, narrow: dict[str, Compiler], questions: list[Question], template: Template, seed: int
) -> None:
    compiled = narrow[template.id].compile(
        "s", [dataclasses.replace(q, id="SECRET") for q in questions], layout=Layout.GROUPED
    )
    check_protocol(compiled, 1)
    probabilities = read_out(compiled, answered(compiled, seed))
    places: dict[int, list[int]] = {}
    for number, readout in enumerate(compiled.readouts):
        places.setdefault(readout.block, []).append(number)
    assert [n for numbers in places.values() for n in numbers] == list(range(len(questions)))
    names = nano.names()
    for block, numbers in places.items():
        canvas = compiled.request.blocks[block].canvases[0].copy()
        assert len(canvas) <= 48 or len(numbers) == 1
        for number in numbers:
            slots = compiled.request.blocks[block].slots[slice(*compiled.readouts[number].slots)]
            canvas[slots] = filled(compiled, number, int(probabilities[number].argmax()))[slots]
        shown = "".join(names[t] for t in compiled.request.blocks[block].suffix)
        assert "SECRET" not in shown
        text = nano.decode(canvas[:-1].tolist())
        if template is NANO_LITERAL:
            got = json.loads(text)
            assert list(got) == [f"q{i + 1}" for i in range(len(numbers))]
            for number, value in zip(numbers, got.values(), strict=True):
                expected = values_of(questions[number])[int(probabilities[number].argmax())]
                assert value == expected


def test_noise_is_uniform_over_plain_ids_and_depends_on_what_is_asked(nano: TextTokenizer) -> None:
    compiler = Compiler(nano, NANO_LABEL)
    question = Noul("x", "Is it so?")

    def noise(state: str, q: Question, c: Compiler = compiler) -> NDArray[np.int32]:
        block = c.compile(state, [q], replicas=500).request.blocks[0]
        return block.canvases[:, block.slots[0]]

    first = noise("state", question)
    assert np.array_equal(first, noise("state", dataclasses.replace(question, id="y")))
    other = Compiler(nano, dataclasses.replace(NANO_LABEL, version="v2"))
    for changed in (noise("stats", question), noise("state", Noul("x", "Is it?")), noise("state", question, other)):
        assert (changed != first).mean() > 0.95
    assert first.min() >= 267
    assert 7300 < first.mean() < 9300
    assert len(set(first.tolist())) > 450


def test_gemma_markup(gemma: TextTokenizer) -> None:
    compiler = Compiler(gemma, OPENJEV_LITERAL)
    question = Choice("id", "Which?", (Option("refund", "wants money"), Option("other")))
    compiled = compiler.compile("the state", [question, Noul("n", "True?", "yes it is")])
    names = gemma.names()

    def shown(tokens: Sequence[int]) -> str:
        return "".join(names[int(t)] for t in tokens).replace("Ġ", " ").replace("Ċ", "\n")

    assert shown(compiled.request.state) == "<bos><|turn>user\nthe state"
    assert shown(compiled.request.blocks[0].suffix) == (
        "\n\nAnswer the following about the text above. Return one JSON object and nothing else.\n"
        '\n"answer": Which?\nAllowed values:\n- "refund": wants money\n- "other"<turn|>\n<|turn>model\n'
    )
    assert '"answer": True?\nAllowed values: true, false\ntrue means: yes it is<turn|>' in shown(
        compiled.request.blocks[1].suffix
    )
    canvas = filled(compiled, 0, 1)
    assert len(canvas) % 32 == 0
    text = shown(canvas)
    assert text.startswith('<|channel>thought\n<channel|>{"answer": "other"}<turn|><eos>')
    assert set(text.removeprefix('<|channel>thought\n<channel|>{"answer": "other"}<turn|>').split("<eos>")) == {""}


def test_nano_label_tokens_are_pinned(nano: TextTokenizer) -> None:
    question = Choice("id", "Which team?", (Option("billing", "money"), Option("technical support")))
    compiled = Compiler(nano, NANO_LABEL).compile("I was charged twice.", [question, Noul("n", "Is it angry?")])
    assert NANO_LABEL.id == "nano-label-v1"
    assert NANO_LABEL.hash == "4e4a8b4c0dc3"
    assert compiled.request.state.tolist() == [2, 328, 707, 9316, 6916, 301, 4]
    choice, noul = compiled.request.blocks
    assert choice.suffix.tolist() == [5, 13967, 2541, 318, 6, 3328, 545, 313, 2719, 12, 6, 5478, 1465, 13, 7]
    assert choice.canvases.tolist() == [[378, 289, 11111, 289, 313, 487, 12801, 380, 1]]
    assert (choice.slots.tolist(), choice.candidates.tolist(), choice.offsets.tolist()) == ([6], [12, 13], [0, 2])
    assert noul.suffix.tolist() == [5, 4394, 628, 12335, 318, 7]
    assert noul.candidates.tolist() == [8, 9]


def test_label_answers_are_in_question_order(nano: TextTokenizer) -> None:
    questions: list[Question] = [Noul("n", "?"), Choice("c", "?", tuple(Option(str(i)) for i in range(255)))]
    compiled = Compiler(nano, NANO_LABEL).compile("", questions)
    result = answered(compiled, 0)
    true, choice = read_out(compiled, result)
    expected = np.exp(result.blocks[0].log_probs[0, 0].astype(np.float64))
    np.testing.assert_allclose(true, expected / expected.sum(), rtol=1e-9)
    expected = np.exp(result.blocks[1].log_probs[0, 0].astype(np.float64))
    np.testing.assert_allclose(choice, expected / expected.sum(), rtol=1e-9)
    with pytest.raises(UnknownControlToken):
        Compiler(nano, NANO_LABEL).compile("", [Choice("c", "?", tuple(Option(str(i)) for i in range(256)))])


def test_replicas_are_averaged_and_the_last_step_is_read(nano: TextTokenizer) -> None:
    compiled = Compiler(nano, NANO_LABEL).compile("s", [Noul("n", "?")], steps=2, replicas=2)
    log_probs = np.log(np.array([[[0.5, 0.5], [0.5, 0.5]], [[0.2, 0.2], [0.9, 0.1]]], dtype=np.float32))
    zeros = np.zeros((2, 2, 1), dtype=np.float32)
    (p,) = read_out(compiled, EngineResult((BlockResult(log_probs, zeros),)))
    np.testing.assert_allclose(p, [0.7, 0.3], atol=1e-7)
    for bad in (np.nan, np.inf, -np.inf):
        broken = log_probs.copy()
        broken[1, 0, 0] = bad
        with pytest.raises(NonFiniteLogits):
            read_out(compiled, EngineResult((BlockResult(broken, zeros),)))
    with pytest.raises(NonFiniteLogits):
        read_out(compiled, EngineResult((BlockResult(log_probs, zeros + np.inf),)))
    with pytest.raises(ValueError, match="canvas blocks"):
        read_out(compiled, EngineResult(()))
    with pytest.raises(ValueError, match="log_probs"):
        read_out(compiled, EngineResult((BlockResult(log_probs[:, :1], zeros),)))


def test_one_option_has_no_slots_and_probability_one(nano: TextTokenizer) -> None:
    for template in (NANO_LABEL, NANO_LITERAL):
        for layout in Layout:
            compiled = Compiler(nano, template).compile("s", [Choice("c", "?", (Option("only"),))], layout=layout)
            assert len(compiled.request.blocks) == 1
            assert compiled.request.blocks[0].slots.shape == (0,)
            assert compiled.request.blocks[0].offsets.tolist() == [0]
            assert compiled.usage.output_tokens > 0
            assert [p.tolist() for p in read_out(compiled, answered(compiled, 0))] == [[1.0]]


def test_values_that_a_tokenizer_cannot_tell_apart_share() -> None:
    compiler = Compiler(words('{"answer":', '"known"}'), NANO_LITERAL)
    question = Choice("c", "?", (Option("x"), Option("known"), Option("y")))
    compiled = compiler.compile("s", [question])
    (p,) = read_out(compiled, answered(compiled, 3))
    assert p[0] == p[2]
    assert p.sum() == pytest.approx(1)


@given(seed=st.integers(0, 2**32), shared=st.integers(0, 30))
@settings(max_examples=5)
def test_255_long_options(nano: TextTokenizer, seed: int, shared: int) -> None:
    rng = np.random.default_rng(seed)
    words_of = [[f"w{n}" for n in rng.integers(0, 9, 20)] for _ in range(255)]
    names = [" ".join([*["same"] * shared, *some, str(i)]) for i, some in enumerate(words_of)]
    compiled = Compiler(nano, NANO_LITERAL).compile("s", [Choice("c", "?", tuple(map(Option, names)))])
    check_protocol(compiled, 1)
    (p,) = read_out(compiled, answered(compiled, 0))
    assert p.sum() == pytest.approx(1, abs=1e-12)
    best = int(p.argmax())
    assert json.loads(nano.decode([t for t in filled(compiled, 0, best).tolist() if t > 1]))["answer"] == names[best]


def test_width_limit_and_empty_requests(nano: TextTokenizer) -> None:
    compiler = Compiler(nano, NANO_LITERAL, max_canvas_tokens=64)
    question = Choice("c", "?", (Option("word " * 200), Option("b")))
    for layout in Layout:
        with pytest.raises(CanvasTooWide) as caught:
            compiler.compile("s", [question], layout=layout)
        assert caught.value.tokens > caught.value.limit == 64
    for bad in ({"steps": 0}, {"replicas": 0}):
        with pytest.raises(ValueError, match="at least one"):
            compiler.compile("s", [Noul("n", "?")], **bad)
    with pytest.raises(ValueError, match="at least one"):
        compiler.compile("s", [])


def test_structured_texts_are_json(nano: TextTokenizer) -> None:
    compiler = Compiler(nano, NANO_LABEL)
    shaped = {"a": [1, "é"], "b": None}
    plain = '{"a": [1, "é"], "b": null}'
    one = compiler.compile(shaped, [Choice("c", shaped, (Option("x", shaped), Option("y")))])
    two = compiler.compile(plain, [Choice("c", plain, (Option("x", plain), Option("y")))])
    assert one.request.state.tolist() == two.request.state.tolist()
    assert same(one.request.blocks[0], two.request.blocks[0])


@given(a=TEXT, b=TEXT)
def test_the_state_is_a_prefix_that_questions_do_not_change(compilers: dict[str, Compiler], a: str, b: str) -> None:
    assume(a != b)
    compiler = compilers["nano-literal-1"]
    states = [compiler.compile(a, [Noul("n", text)]).request.state for text in (a, b)]
    assert np.array_equal(*states)


def test_questions_found_again_compile_as_new_ones(nano: TextTokenizer) -> None:
    kept, forgetful = Compiler(nano, NANO_LABEL), Compiler(nano, NANO_LABEL, cache_bytes=0)
    asked = [
        Noul("a", "Is it?"),
        Choice("b", "Which?", (Option("x"), Option("y"))),
        Noul("c", "Is it?"),
        Noul("d", "Or?"),
    ]
    for state in ("one", "two"):
        for questions in (asked, asked[::-1]):
            pairs = [c.compile(state, questions).request.blocks for c in (kept, forgetful)]
            assert all(same(one, two) for one, two in zip(*pairs, strict=True))
