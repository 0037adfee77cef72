"""Checkpoints from the Hugging Face hub: the same commit at every start, safetensors and text files only.

What is downloaded goes where `HF_HOME` says, with huggingface_hub's progress bars; an interrupted download resumes.
With `HF_HUB_OFFLINE=1` only what is there already is used. Code that a repository may have is neither fetched nor run.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path

import httpx

from openjev_server.engine.released import PINNED_REVISIONS

__all__ = ["HUB_ID", "HubError", "commit_of", "download", "repository_of"]

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
COMMIT = re.compile(r"[0-9a-f]{40}")
FILES = ["*.json", "*.safetensors", "*.jinja"]
DEFAULT_BRANCH = "main"


class HubError(Exception):
    """The hub does not give the repository; the message is one sentence that says what to do."""


def download(hub_id: str, revision: str = "auto") -> Path:
    """The directory of a repository's files, downloaded if need be.

    Args:
        hub_id: OWNER/NAME.
        revision: a commit, branch or tag. `auto` is the pinned commit of a known model; of any other repository the
            commit that was downloaded first, so that a branch which moves on does not change a server.

    Raises HubError.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    commit: str | None = None
    try:
        commit = _chosen(hub_id, revision)
        if commit is not None and COMMIT.fullmatch(commit):
            with suppress(LocalEntryNotFoundError):  # a complete snapshot needs no network
                here = snapshot_download(hub_id, revision=commit, allow_patterns=FILES, local_files_only=True)
                if _is_complete(Path(here)):
                    return Path(here)
        return Path(snapshot_download(hub_id, revision=commit, allow_patterns=FILES))
    except Exception as error:
        raise HubError(_sentence(hub_id, commit or DEFAULT_BRANCH, error)) from error


def commit_of(directory: Path) -> str | None:
    """The commit that a directory of the hub's cache holds; None for any other directory."""
    here = directory.parent.name == "snapshots" and directory.parent.parent.name.startswith("models--")
    return directory.name if here else None


def repository_of(directory: Path) -> str | None:
    """OWNER/NAME of what a directory of the hub's cache holds; None for any other directory."""
    if commit_of(directory) is None:
        return None
    return directory.parent.parent.name.removeprefix("models--").replace("--", "/", 1)


def _chosen(hub_id: str, revision: str) -> str | None:
    if revision != "auto":
        return revision
    return PINNED_REVISIONS.get(hub_id) or _first_commit(hub_id)


def _first_commit(hub_id: str) -> str | None:
    """The commit that the cache has as the default branch's."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    reference = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=hub_id, repo_type="model") / "refs" / DEFAULT_BRANCH
    return reference.read_text().strip() if reference.is_file() else None


def _is_complete(directory: Path) -> bool:
    """Whether every weight file is there: older versions of huggingface_hub take a begun snapshot for a whole one."""
    index = directory / "model.safetensors.index.json"
    if not index.is_file():
        return any(directory.glob("*.safetensors"))
    files = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return all((directory / file).is_file() for file in files)


def _sentence(hub_id: str, revision: str, error: Exception) -> str:
    from huggingface_hub import constants, errors

    match error:
        case errors.GatedRepoError():
            return (
                f"{hub_id} is gated: accept its terms on https://huggingface.co/{hub_id}, then log in with "
                "`hf auth login` or set HF_TOKEN."
            )
        case errors.RepositoryNotFoundError():
            return f"There is no directory {hub_id!r}, and the hub has no such model, or it is private (set HF_TOKEN)."
        case errors.RevisionNotFoundError():
            return f"{hub_id} has no revision {revision!r}: OPENJEV_MODEL_REVISION takes a commit, branch or tag."
        case errors.OfflineModeIsEnabled() | errors.LocalEntryNotFoundError() if constants.HF_HUB_OFFLINE:
            return f"{hub_id} at {revision} is not complete in {constants.HF_HUB_CACHE}, and HF_HUB_OFFLINE is set."
        case errors.HFValidationError():
            return f"{hub_id!r} is no hub id: {_first_line(error)}"
        case errors.HfHubHTTPError():
            return f"The hub does not give {hub_id}: {_first_line(error)}"
        case _:
            return f"{hub_id} at {revision} is not in the cache, and cannot be fetched: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    """The root of an error in few words: huggingface_hub wraps a lost connection in a paragraph."""
    while isinstance(error.__cause__, Exception) and not isinstance(error, httpx.HTTPError):
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]
