"""Whether a result can be written, asked before the work that it is the result of."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

__all__ = ["CannotWrite", "check_directory", "check_files"]


class CannotWrite(Exception):
    """A file or directory cannot be written; the message names it and says why, in one line."""


def check_files(*paths: Path | None) -> None:
    """Makes the directories of these files and opens each as if to append: nothing that is there changes.

    Raises CannotWrite.
    """
    for path in filter(None, paths):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _try(path)
        except OSError as error:
            raise CannotWrite(f"cannot write {path}: {_reason(error)}") from error


def check_directory(path: Path) -> None:
    """Makes the directory, and a file in it that is gone again. Raises CannotWrite."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise CannotWrite(f"cannot write to {path}: {_reason(error)}") from error


def _try(path: Path) -> None:
    there = path.exists()
    if there and not path.is_file() and not path.is_dir():  # opening a pipe would already be its beginning and end
        if not os.access(path, os.W_OK):
            raise PermissionError
        return
    with path.open("ab"):
        pass
    if not there:
        path.unlink()


def _reason(error: OSError) -> str:
    if isinstance(error, FileExistsError):  # where a directory should be made
        return os.strerror(errno.ENOTDIR)
    return error.strerror or "it may not be written"
