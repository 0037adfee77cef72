"""A file applies to what it was fitted on, and to nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openjev_server.bundle import UNQUANTISED, load_bundle, resolve_model
from openjev_server.calibration import (
    IDENTITY,
    CalibrationError,
    Running,
    find_calibrations,
    mark,
    refuse_other_template,
)
from openjev_server.calibration.files import FILE_NAME, Released, read_file
from openjev_server.calibration.find import SHIPPED
from openjev_server.canvas.templates import SEED, shipped_hash
from openjev_server.engine.fake import FAKE_INFO
from openjev_server.engine.released import DIFFUSIONGEMMA_26B_A4B, PINNED_REVISIONS
from openjev_server.hub import repository_of
from openjev_server.questions import Choice, Noul, Option, Score

RUNNING = Running("nano-label-v1", "aaaa", "bbbb")
BINDING = {"template": "nano-label-v1", "template_hash": "aaaa", "weights_hash": "bbbb"}
ENTRY = {
    "layout": "isolated",
    "steps": 2,
    "scalings": {
        "choice": {"method": "temperature", "temperature": 1.0},
        "noul": {"method": "platt", "slope": 0.5, "bias": 0.0},
        "score": {"method": "temperature", "temperature": 1.2},
    },
    "fitted_on": "a test",
}
YES_NO = Noul("q", "x?")
LEVELS = Score("s", None, ("a", "b"))
OPTIONS = Choice("c", None, (Option("a"), Option("b")))
GEMMA = Released(model=DIFFUSIONGEMMA_26B_A4B, revision=PINNED_REVISIONS[DIFFUSIONGEMMA_26B_A4B])
GEMMA_RUNNING = Running(SEED.id, "bound to a chat template", "cccc", SEED.hash, GEMMA)


def write(directory: Path, **changes: Any) -> Path:
    path = directory / FILE_NAME
    path.write_text(json.dumps({**BINDING, "entries": [ENTRY], **changes}))
    return path


def test_each_type_has_its_own_map(tmp_path: Path) -> None:
    write(tmp_path)
    calibration = find_calibrations("auto", tmp_path, RUNNING).choose("isolated", 2)
    assert list(calibration.apply(YES_NO, [0.9, 0.1])) == pytest.approx([0.75, 0.25])
    assert list(calibration.apply(OPTIONS, [0.9, 0.1])) == pytest.approx([0.9, 0.1])
    zero = calibration.apply(LEVELS, [1.0, 0.0])
    assert np.isfinite(zero).all()
    assert min(zero) > 0


@pytest.mark.parametrize("other", [{"weights_hash": "cccc"}, {"template_hash": "cccc"}, {"template": "x-1"}])
def test_another_file_is_ignored_in_a_checkpoint_and_refused_when_named(tmp_path: Path, other: dict[str, str]) -> None:
    path = write(tmp_path, **other)
    found = find_calibrations("auto", tmp_path, RUNNING)
    assert found.choose("isolated", 2) is IDENTITY
    assert found.listing()["status"] == "none"
    (theirs,) = other.values()
    ours = getattr(RUNNING, next(iter(other)))
    assert theirs in found.listing()["reason"]
    assert ours in found.listing()["reason"]
    with pytest.raises(CalibrationError, match=f"{theirs}.*{ours}") as error:
        find_calibrations(str(path), tmp_path, RUNNING)
    assert str(error.value).count(".") <= str(path).count(".") + 1, "one sentence"


def test_a_named_file_comes_before_the_checkpoints_own(tmp_path: Path) -> None:
    write(tmp_path, weights_hash="cccc")
    (tmp_path / "other").mkdir()
    named = write(tmp_path / "other")
    found = find_calibrations(str(named), tmp_path, RUNNING)
    assert found.source == str(named)
    assert found.choose("isolated", 2) is not IDENTITY
    assert found.choose("isolated", 1) is found.choose("grouped", 2) is IDENTITY
    (entry,) = found.listing()["entries"]
    assert (entry["layout"], entry["steps"], entry["types"]) == ("isolated", 2, ["choice", "noul", "score"])
    assert entry["fitted_on"] == "a test"


def test_off_is_off(tmp_path: Path) -> None:
    write(tmp_path)
    found = find_calibrations("off", tmp_path, RUNNING)
    assert not found.entries
    assert "off" in found.listing()["reason"]


def test_no_file_is_the_identity(tmp_path: Path) -> None:
    found = find_calibrations("auto", tmp_path, RUNNING)
    assert not found.entries
    assert found.listing()["weights_hash"] == "bbbb"


@pytest.mark.parametrize(
    "change",
    [
        {"entries": [{**ENTRY, "steps": 0}]},
        {"entries": [{**ENTRY, "x": 1}]},
        {"entries": [{**ENTRY, "scalings": {"noul": {"method": "temperature", "temperature": -1}}}]},
        {"entries": [{**ENTRY, "scalings": {"choice": {"method": "platt", "slope": 1, "bias": 0}}}]},
        {"entries": [ENTRY, ENTRY]},
        {"weights_hash": None},
        {"released": {"model": "a/b", "revision": "c"}},
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write(tmp_path, **change)
    with pytest.raises(CalibrationError, match=FILE_NAME):
        find_calibrations("auto", tmp_path, RUNNING)


def test_a_named_file_that_is_missing_or_for_another_template_is_refused_before_loading(tmp_path: Path) -> None:
    refuse_other_template("auto", "nano-label-v1", "aaaa")
    refuse_other_template("off", "nano-label-v1", "aaaa")
    with pytest.raises(CalibrationError, match="Cannot read"):
        refuse_other_template(str(tmp_path / "nothing.json"), "nano-label-v1", "aaaa")
    path = str(write(tmp_path))
    refuse_other_template(path, "nano-label-v1", "aaaa")
    with pytest.raises(CalibrationError, match=r"aaaa.*cccc"):
        refuse_other_template(path, "nano-label-v1", "cccc")


def test_the_hash_is_that_of_what_is_done(tmp_path: Path) -> None:
    def hash_of(**changes: Any) -> str:
        write(tmp_path, entries=[{**ENTRY, **changes}])
        return find_calibrations("auto", tmp_path, RUNNING).choose("isolated", 2).hash

    assert hash_of() == hash_of(fitted_on="something else")
    assert len({hash_of(), hash_of(floor=1e-6), hash_of(scalings={"noul": ENTRY["scalings"]["noul"]})}) == 3  # type: ignore[index]


def test_an_answer_is_marked_by_the_types_that_were_asked(tmp_path: Path) -> None:
    write(tmp_path, entries=[{**ENTRY, "scalings": {"noul": {"method": "temperature", "temperature": 2}}}])
    calibration = find_calibrations("auto", tmp_path, RUNNING).choose("isolated", 2)
    assert mark(calibration, [YES_NO]) == calibration.hash
    assert mark(calibration, [YES_NO, LEVELS]) == f"{calibration.hash}:noul"
    assert mark(calibration, [LEVELS]) == mark(IDENTITY, [YES_NO]) == "none"
    assert list(calibration.apply(LEVELS, [0.9, 0.1])) == [0.9, 0.1]


def test_the_embedded_checkpoint_has_one_for_its_default() -> None:
    bundle = load_bundle(resolve_model("nano"))
    weights = read_file(bundle.directory / FILE_NAME).weights_hash
    assert weights is not None
    found = bundle.calibrations(replace(FAKE_INFO, weights_hash=weights))
    assert {steps for _, steps in found.entries} == {1, 2}
    assert found.choose("isolated", 2).kinds == {"choice", "noul", "score"}
    for question in (YES_NO, OPTIONS, LEVELS):
        first, second = found.choose("isolated", 2).apply(question, [0.51, 0.49])
        assert first > second, "it never moves another answer to the top"


def test_what_is_shipped_for_the_released_model_applies_to_it_alone(tmp_path: Path) -> None:
    found = find_calibrations("auto", tmp_path, GEMMA_RUNNING)
    assert found.note == "fitted on the seed's recorded numbers, not on this server's"
    assert found.listing()["note"] == found.note
    assert set(found.entries) == {("grouped", 1), ("grouped", 4)}
    one, four = (found.choose("grouped", steps) for steps in (1, 4))
    assert one.kinds == four.kinds == {"noul"}
    assert 0.5 < four.apply(YES_NO, [0.99, 0.01])[0] < one.apply(YES_NO, [0.99, 0.01])[0] < 0.99
    assert found.choose("isolated", 1) is found.choose("grouped", 2) is IDENTITY
    others = [
        replace(GEMMA_RUNNING, released=None),
        replace(GEMMA_RUNNING, released=GEMMA.model_copy(update={"revision": "0" * 40})),
        replace(GEMMA_RUNNING, released=GEMMA.model_copy(update={"model": "somebody/else"})),
        replace(GEMMA_RUNNING, shipped_template_hash="another wording"),
        replace(GEMMA_RUNNING, template="openjev-literal-1"),
    ]
    assert not any(find_calibrations("auto", tmp_path, other).entries for other in others)
    with pytest.raises(CalibrationError, match="f7f5b7f5"):
        find_calibrations(str(next(SHIPPED.glob("*.json"))), tmp_path, others[0])


def test_released_weights_are_known_by_the_hubs_directory_and_must_be_unchanged(tmp_path: Path) -> None:
    directory = tmp_path / "models--google--diffusiongemma-26B-A4B-it" / "snapshots" / GEMMA.revision
    assert repository_of(directory) == GEMMA.model
    assert repository_of(tmp_path) is None
    bundle = replace(load_bundle(resolve_model("nano")), directory=directory, template=replace(SEED, chat="theirs"))
    assert shipped_hash(bundle.template) == SEED.hash != bundle.template.hash
    for dtype, adapter, applies in (
        ("bfloat16", None, True),
        ("float8", None, False),
        ("int4", None, False),
        ("bfloat16", "an adapter", False),
    ):
        found = bundle.calibrations(replace(FAKE_INFO, dtype=dtype), adapter=adapter)
        assert bool(found.entries) == applies, (dtype, adapter)
    assert {"float8", "int4"}.isdisjoint(UNQUANTISED)
