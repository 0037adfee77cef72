from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest
from openjev_server import canvas
from openjev_server.canvas import (
    NANO_LABEL,
    NANO_LITERAL,
    OPENJEV_LITERAL,
    SEED,
    TEMPLATES,
    Compiler,
    Layout,
    Template,
    TextTokenizer,
    UnknownTemplate,
    template_for,
)
from openjev_server.canvas.cache import WeightedCache
from openjev_server.canvas.templates import canonical_id
from openjev_server.questions import Noul
from tokenizers import Tokenizer, models


def test_the_tokenizer_picks_its_template(nano: TextTokenizer, gemma: TextTokenizer) -> None:
    assert template_for(nano) is NANO_LABEL
    assert template_for(gemma) is OPENJEV_LITERAL
    assert template_for(nano, "nano-literal-1") is NANO_LITERAL
    for name, template in TEMPLATES.items():
        assert template.id == name
    with pytest.raises(UnknownTemplate, match="unknown template 'x'"):
        template_for(nano, "x")
    with pytest.raises(UnknownTemplate, match=r"needs tokens.*<\|turn>"):
        template_for(nano, "openjev-literal-1")
    bare = TextTokenizer(Tokenizer(models.WordLevel({"a": 0}, unk_token="a")))
    with pytest.raises(UnknownTemplate, match="no template"):
        template_for(bare)


def test_a_name_without_its_version_is_the_shipped_one(
    nano: TextTokenizer, gemma: TextTokenizer, tmp_path: Path
) -> None:
    for name, short in (("seed-1", "seed"), ("openjev-literal-1", "openjev-literal")):
        assert template_for(gemma, short) is template_for(gemma, name)
    for name, short in (("nano-label-v1", "nano-label"), ("nano-literal-1", "nano-literal")):
        assert template_for(nano, short) is template_for(nano, name)
    assert canonical_id("auto") == "auto"
    path = tmp_path / "own.toml"
    path.write_text('base = "seed"\nname = "own"\n')
    assert dataclasses.replace(template_for(gemma, str(path)), name="seed") == SEED


@pytest.mark.parametrize(("base", "needed"), [("openjev-literal", 32), ("seed", 256), ("nano-label", 10)])
def test_a_grouped_width_that_fits_no_field_is_refused(
    nano: TextTokenizer, gemma: TextTokenizer, tmp_path: Path, base: str, needed: int
) -> None:
    tokenizer = nano if base.startswith("nano") else gemma
    path = tmp_path / "own.toml"

    def template(width: int) -> Template:
        path.write_text(f'base = "{base}"\nname = "own"\ngrouped_width = {width}\n')
        return template_for(tokenizer, str(path))

    with pytest.raises(
        UnknownTemplate, match=f"own.toml: grouped_width {needed - 1} is too small: .* {needed} tokens$"
    ):
        template(needed - 1)
    question = Noul("late", None)
    compiled = Compiler(tokenizer, template(needed)).compile("x", [question], layout=Layout.GROUPED)
    assert compiled.request.blocks[0].canvases.shape[1] == needed


def test_every_parameter_is_in_the_hash() -> None:
    assert len({template.hash for template in TEMPLATES.values()}) == len(TEMPLATES)
    assert NANO_LABEL.hash == "4e4a8b4c0dc3", "the embedded checkpoint's calibration is bound to it"
    assert dataclasses.replace(NANO_LABEL).hash == NANO_LABEL.hash
    changes = {
        "name": "x",
        "version": "x",
        "spelling": canvas.Spelling.LITERAL,
        "state": ("{state}",),
        "opening": ("x",),
        "closing": ("x",),
        "noul": NANO_LABEL.score,
        "choice": NANO_LABEL.score,
        "score": NANO_LABEL.noul,
        "canvas_head": ("x",),
        "canvas_tail": ("x",),
        "canvas_fill": "<pad>",
        "width_multiple": 2,
        "grouped_width": 2,
        "self_conditioning": "allowed",
        "turn_open": ("x",),
        "turn_close": ("x",),
        "chat": "x",
        "trim": True,
        "prompt": "x",
        "grouped_open": "{ ",
        "grouped_separator": ",",
        "grouped_close": " }",
        "keys": "ids",
        "noise": "shared",
        "temperature": (0.8, 0.4),
        "entropy_bound": 0.1,
    }
    assert set(changes) == {field.name for field in dataclasses.fields(NANO_LABEL)}
    for name, value in changes.items():
        assert dataclasses.replace(NANO_LABEL, **{name: value}).hash != NANO_LABEL.hash


def test_the_cache_stays_under_its_weight() -> None:
    cache: WeightedCache[int] = WeightedCache(10)
    made: list[int] = []

    def make(value: int, weight: int) -> int:
        def new() -> tuple[int, int]:
            made.append(value)
            return value, weight

        return cache.get(value, new)

    for value in (1, 2, 1, 3):
        assert make(value, 4) == value
    assert made == [1, 2, 3]
    assert (cache.weight, len(cache)) == (8, 2)
    make(1, 4)
    make(2, 4)
    assert made == [1, 2, 3, 2]
    assert make(9, 11) == 9
    assert (cache.weight, len(cache)) == (8, 2)


def test_the_cache_counts_a_value_made_twice_once() -> None:
    cache: WeightedCache[int] = WeightedCache(10)
    both = threading.Barrier(2)

    def make() -> tuple[int, int]:
        both.wait(5)
        return 1, 6

    threads = [threading.Thread(target=cache.get, args=("k", make)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (cache.weight, len(cache)) == (6, 1)


def test_the_public_names_are_complete_and_sorted() -> None:
    assert set(canvas.__all__) <= set(dir(canvas))
    assert len(set(canvas.__all__)) == len(canvas.__all__)
