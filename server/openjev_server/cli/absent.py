"""What to say when a package that a command needs is not installed."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["absent_package"]

DISTRIBUTION = "openjev-canvas"
EXTRAS: Mapping[str, str] = {"matplotlib": "agree"}
"""Packages that come with an extra only."""
OWN = ("openjev_server", "openjev_sdk", "openjev_compat")


def absent_package(error: ModuleNotFoundError) -> str | None:
    """One line that names the package and how to get it; None when it is a module of ours, thus a fault of ours."""
    package = (error.name or "").partition(".")[0]
    if not package or package in OWN:
        return None
    extra = EXTRAS.get(package)
    install = f"'{DISTRIBUTION}[{extra}]'" if extra else package
    return f"this command needs {package}, which is not installed: pip install {install}"
