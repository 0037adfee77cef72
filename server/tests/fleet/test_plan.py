"""What the settings come to: how many processes, where, with which threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from openjev_server.bundle import ModelNotFound
from openjev_server.fleet import plan
from openjev_server.fleet.plan import engine_devices, engine_specs
from openjev_server.settings import Settings


@pytest.mark.parametrize(
    ("gpus", "settings", "devices"),
    [
        (0, {}, ()),
        (0, {"engines": 0}, ()),
        (0, {"engines": 2}, ("cpu", "cpu")),
        (0, {"engines": 1, "device": "cpu"}, ("cpu",)),
        (1, {}, ("cuda:0",)),
        (1, {"engines": 0}, ()),
        (4, {}, ("cuda:0", "cuda:1", "cuda:2", "cuda:3")),
        (4, {"device": "cuda"}, ("cuda:0", "cuda:1", "cuda:2", "cuda:3")),
        (4, {"engines": 2}, ("cuda:0", "cuda:1")),
        (2, {"engines": 4}, ("cuda:0", "cuda:1", "cuda:0", "cuda:1")),
        (4, {"device": "cuda:2"}, ("cuda:2",)),
        (4, {"device": "cuda:2", "engines": 2}, ("cuda:2", "cuda:2")),
        (4, {"device": "cpu"}, ()),
        (4, {"device": "cpu", "engines": 2}, ("cpu", "cpu")),
    ],
)
def test_devices(
    monkeypatch: pytest.MonkeyPatch, gpus: int, settings: dict[str, Any], devices: tuple[str, ...]
) -> None:
    monkeypatch.setattr(plan, "_visible_gpus", lambda: gpus)
    assert engine_devices(Settings(**settings)) == devices


def test_an_engine_gets_all_settings_but_the_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    settings = Settings(api_keys="me=very-secret", steps=3, dtype="float32", engines=2)
    first, second = engine_specs(settings, ("cpu", "cpu"), tmp_path)
    assert "secret" not in repr(first)
    received = json.loads(json.dumps(dict(first.options)))
    assert received["directory"] == str(tmp_path)
    loaded = Settings(**received["settings"])
    kept = settings.model_dump(exclude={"api_keys", "engines", "device", "threads"})
    assert loaded.model_dump(exclude={"api_keys", "engines", "device", "threads"}) == kept
    assert (loaded.device, loaded.threads, loaded.engines) == ("cpu", 4, None)
    assert first.name != second.name


def test_threads_that_were_set_are_not_shared_out(tmp_path: Path) -> None:
    (spec,) = engine_specs(Settings(threads=3), ("cpu",), tmp_path)
    assert spec.options["settings"]["threads"] == 3
    (spec,) = engine_specs(Settings(), ("cuda:1",), tmp_path)
    assert spec.options["settings"]["threads"] is None


@pytest.mark.parametrize(
    ("visible", "own"),
    [(None, ["0", "1"]), ("", ["0", "1"]), ("3, 5", ["3", "5"]), ("GPU-a,GPU-b", ["GPU-a", "GPU-b"])],
)
def test_an_engine_sees_its_own_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, visible: str | None, own: list[str]
) -> None:
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    specs = engine_specs(Settings(), ("cuda:0", "cuda:1"), tmp_path)
    assert [spec.environment["CUDA_VISIBLE_DEVICES"] for spec in specs] == own
    assert {spec.options["settings"]["device"] for spec in specs} == {"cuda:0"}
    assert [spec.name for spec in specs] == ["engine 0 on cuda:0", "engine 1 on cuda:1"]
    (alone,) = engine_specs(Settings(), ("cuda",), tmp_path)
    assert alone.environment["CUDA_VISIBLE_DEVICES"] == own[0]
    (cpu,) = engine_specs(Settings(), ("cpu",), tmp_path)
    assert not cpu.environment


def test_an_adapter_is_found_before_any_process_starts(tmp_path: Path) -> None:
    (spec,) = engine_specs(Settings(adapter=str(tmp_path)), ("cpu",), tmp_path)
    assert spec.options["settings"]["adapter"] == str(tmp_path.resolve())
    with pytest.raises(ModelNotFound):
        engine_specs(Settings(adapter="no such adapter"), ("cpu",), tmp_path)
