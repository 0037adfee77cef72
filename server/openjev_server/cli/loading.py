"""A progress bar on stderr while a checkpoint is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["loading_bar"]


@contextmanager
def loading_bar(model: str, revision: str = "auto") -> Iterator[Callable[[str], None] | None]:
    """Yields what to call with the name of every loaded tensor; None when stderr is no terminal.

    The bar appears with the first tensor and goes with the last.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    bar = _Bar(console, model, revision)
    try:
        yield bar.advance
    finally:
        bar.stop()


class _Bar:
    def __init__(self, console: object, model: str, revision: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        assert isinstance(console, Console)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True)
        self._model, self._revision = model, revision
        self._left: int | None = None

    def advance(self, _name: str) -> None:
        if self._left is None:
            self._left = _tensor_count(self._model, self._revision)
            self._task = self._progress.add_task("Loading weights", total=self._left)
            self._progress.start()
        self._progress.advance(self._task)
        self._left -= 1
        if self._left <= 0:
            self.stop()

    def stop(self) -> None:
        self._progress.stop()


def _tensor_count(model: str, revision: str) -> int:
    from openjev_server.bundle import resolve_model
    from openjev_server.engine.config import BackboneConfig
    from openjev_server.engine.tensors import tensor_shapes

    return len(tensor_shapes(BackboneConfig.from_directory(resolve_model(model, revision=revision))))
