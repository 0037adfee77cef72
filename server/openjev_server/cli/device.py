"""Whether a device that was asked for is there."""

from __future__ import annotations

from openjev_server.cli.failure import failed

__all__ = ["check_device"]

ALWAYS_THERE = ("auto", "cpu")


def check_device(name: str) -> None:
    """Raises typer.Exit (2) after saying what is wrong with `cuda:7` and the like. Imports torch only then."""
    if name in ALWAYS_THERE:
        return
    import torch

    try:
        kind, index = (device := torch.device(name)).type, device.index or 0
    except RuntimeError:
        kind, index = "", 0
    if kind != "cuda":
        raise failed(f"unknown device {name!r}: auto, cpu, cuda or cuda:N", status=2)
    if index >= torch.cuda.device_count():
        built = "" if torch.version.cuda else "; this torch is built without CUDA"
        raise failed(f"no device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices{built}", status=2)
