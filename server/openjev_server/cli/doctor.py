"""`openjev doctor`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openjev_server.cli.flags import (
    Adapter,
    Calibration,
    Device,
    Dtype,
    Model,
    Revision,
    Template,
    Threads,
    Weights,
    settings_from,
)

if TYPE_CHECKING:
    from openjev_server.doctor import Report

__all__ = ["app"]

STYLES = {"ok": "green", "note": "yellow", "unsafe": "bold yellow", "broken": "bold red"}

app = typer.Typer()


@app.callback()
def group() -> None:
    """Keeps `doctor` a named command of this module."""


@app.command()
def doctor(
    *,
    model: Model = None,
    host: Annotated[str | None, typer.Option(help="Address that `serve` would bind.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Write this machine's answers as the checkpoint's reference.")
    ] = False,
    calibration: Calibration = None,
    template: Template = None,
    device: Device = None,
    dtype: Dtype = None,
    threads: Threads = None,
    weights: Weights = None,
    adapter: Adapter = None,
    revision: Revision = None,
) -> None:
    """Check this machine, the checkpoint and the settings.

    Exit status 1 when something is broken; unsafe settings are named, and do not count as broken.
    """
    given = {
        "model": model,
        "host": host,
        "calibration": calibration,
        "template": template,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "weights": weights,
        "adapter": adapter,
        "model_revision": revision,
    }
    settings = settings_from(**given)
    from openjev_server.cli.device import check_device
    from openjev_server.cli.loading import loading_bar
    from openjev_server.doctor import examine

    check_device(settings.device)
    flags = frozenset(name for name, value in given.items() if value is not None)
    with loading_bar(settings.model, settings.model_revision) as progress:
        report = examine(settings, flags=flags, progress=progress, record_reference=record)
    if as_json:
        typer.echo(json.dumps(_plain(report), indent=2))
    else:
        _print(report)
    raise typer.Exit(1 if report.broken else 0)


def _plain(report: Report) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "broken": report.broken,
        "hardware": asdict(report.hardware),
        "findings": [asdict(finding) for finding in report.findings],
        "settings": {s.name: {"value": s.value, "source": s.source} for s in report.settings},
    }


def _print(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    hardware = report.hardware
    wide = [("AMX", hardware.amx), ("AVX-512 bf16", hardware.avx512_bf16), ("AVX-512", hardware.avx512)]
    units = ", ".join(name for name, there in [*wide, ("AVX2", hardware.avx2)] if there) or "no wide instructions"
    memory = f", {hardware.memory_bytes / 2**30:.0f} GiB" if hardware.memory_bytes else ""
    console.print(Text("Machine", "bold"))
    console.print(Text(f"  {hardware.processor}: {hardware.cores} cores ({units}){memory}"))
    for gpu in hardware.cuda:
        console.print(Text(f"  {gpu.name}: {gpu.memory_bytes / 2**30:.0f} GiB, capability {gpu.capability}"))
    cuda = "" if hardware.cuda else ", no CUDA device"
    console.print(Text(f"  Python {hardware.python}, torch {hardware.torch}, {hardware.threads} threads{cuda}\n"))
    console.print(Text("Findings", "bold"))
    findings = Table.grid(padding=(0, 2, 0, 0))
    for finding in report.findings:
        findings.add_row("", Text(finding.status, STYLES[finding.status]), finding.topic, Text(finding.text))
    console.print(findings)
    console.print(Text("\nSettings", "bold"))
    settings = Table.grid(padding=(0, 2, 0, 0))
    for setting in report.settings:
        style = "dim" if setting.source == "default" else "bold"
        shown = "" if setting.value in (None, []) else json.dumps(setting.value, ensure_ascii=False)
        settings.add_row("", Text(setting.name, style), Text(shown, style), Text(setting.source, style))
    console.print(settings)
