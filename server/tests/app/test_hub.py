"""Hub ids: which commit is taken, what needs no network, and the one sentence for everything that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import huggingface_hub
import pytest
import respx
from huggingface_hub import constants, errors
from openjev_server.bundle import ModelNotFound, model_id, resolve_adapter, resolve_model
from openjev_server.engine.released import DIFFUSIONGEMMA_26B_A4B, PINNED_REVISIONS
from openjev_server.hub import FILES, HubError, commit_of, download

KNOWN = DIFFUSIONGEMMA_26B_A4B
PINNED = PINNED_REVISIONS[KNOWN]
OTHER = "someone/fine-tuned"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
API = "https://huggingface.co/api/models"
Download = Callable[..., str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and no token."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return tmp_path


def snapshot(cache: Path, hub_id: str, commit: str, *, shards: tuple[str, ...] = ("model.safetensors",)) -> Path:
    """What a finished download of two shards leaves behind, or of some of them."""
    home = cache / f"models--{hub_id.replace('/', '--')}"
    directory = home / "snapshots" / commit
    directory.mkdir(parents=True)
    (home / "refs").mkdir(exist_ok=True)
    (home / "refs" / "main").write_text(commit)
    weights = {"a": "model.safetensors", "b": "more.safetensors"}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))
    for shard in shards:
        (directory / shard).write_bytes(b"")
    return directory


@pytest.fixture
def asked(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the hub's client is called with; it has nothing in its cache, and then everything."""
    calls: list[dict[str, Any]] = []

    def fake(hub_id: str, **options: Any) -> str:
        calls.append({"hub_id": hub_id, **options})
        if options.get("local_files_only"):
            raise errors.LocalEntryNotFoundError("nothing here")
        return str(cache)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    return calls


def test_a_known_model_is_pinned(asked: list[dict[str, Any]], cache: Path) -> None:
    assert resolve_model(KNOWN) == cache
    assert len(PINNED) == 40
    assert [call["revision"] for call in asked] == [PINNED, PINNED]
    assert asked[-1]["allow_patterns"] == FILES
    assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in FILES)


def test_a_revision_can_be_chosen(asked: list[dict[str, Any]]) -> None:
    resolve_model(KNOWN, revision="main")
    assert [call["revision"] for call in asked] == ["main"]  # a branch is asked for, not looked up in the cache


def test_an_unknown_model_stays_at_the_commit_that_came_first(asked: list[dict[str, Any]], cache: Path) -> None:
    resolve_model(OTHER)
    assert asked[-1]["revision"] is None
    snapshot(cache, OTHER, COMMIT)
    resolve_model(OTHER)
    assert asked[-1]["revision"] == COMMIT


@respx.mock
def test_what_is_complete_needs_no_network(cache: Path) -> None:
    directory = snapshot(cache, KNOWN, PINNED, shards=("model.safetensors", "more.safetensors"))
    assert resolve_model(KNOWN) == directory
    assert resolve_adapter(KNOWN) == directory
    assert model_id(directory) == "openjev-diffusiongemma-26B-A4B-it"
    assert commit_of(directory) == PINNED
    assert commit_of(cache) is None
    assert not respx.calls


def test_what_is_not_complete_is_resumed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = snapshot(cache, KNOWN, PINNED)
    calls: list[bool] = []

    def fake(hub_id: str, *, local_files_only: bool = False, **options: Any) -> str:
        calls.append(local_files_only)
        return str(directory)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    assert download(KNOWN) == directory
    assert calls == [True, False]


def answer(status: int, code: str | None) -> httpx.Response:
    return httpx.Response(status, headers={} if code is None else {"x-error-code": code}, json={"error": "no"})


@respx.mock
@pytest.mark.parametrize(
    ("response", "says"),
    [
        (answer(403, "GatedRepo"), f"{OTHER} is gated: accept its terms on https://huggingface.co/{OTHER}"),
        (answer(404, "RepoNotFound"), f"There is no directory {OTHER!r}, and the hub has no such model"),
        (answer(404, "RevisionNotFound"), f"{OTHER} has no revision 'v9'"),
        (answer(500, None), f"{OTHER} at v9 is not in the cache, and cannot be fetched"),
        (httpx.ConnectError("no route to host"), "cannot be fetched: no route to host"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(response: httpx.Response | Exception, says: str) -> None:
    route = respx.get(url__startswith=f"{API}/{OTHER}")
    route.side_effect = response if isinstance(response, Exception) else None
    if isinstance(response, httpx.Response):
        route.return_value = response
    with pytest.raises(ModelNotFound) as raised:
        resolve_model(OTHER, revision="v9")
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_offline_is_said(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match=r"is not complete in .*, and HF_HUB_OFFLINE is set"):
        download(KNOWN)


def test_what_is_no_name_at_all_is_said() -> None:
    with pytest.raises(ModelNotFound, match="neither 'nano', nor a directory, nor a hub id"):
        resolve_model("no such model")
    with pytest.raises(ModelNotFound, match="neither a directory nor a hub id"):
        resolve_adapter("no such adapter")
    with pytest.raises(ModelNotFound, match="is no hub id"):
        resolve_model("a/b--c")
    assert resolve_adapter(None) is None
