"""How many engine processes the settings come to, and where each computes."""

from __future__ import annotations

import os
from pathlib import Path

from openjev_server.bundle import resolve_adapter
from openjev_server.fleet.process import EngineSpec
from openjev_server.fleet.supervisor import FleetLimits
from openjev_server.settings import Settings

__all__ = ["engine_devices", "engine_specs", "fleet_limits"]

VISIBLE = "CUDA_VISIBLE_DEVICES"
SUPPORTED = os.name == "posix"
"""File descriptors are passed to the processes, which Windows does not do."""


def engine_devices(settings: Settings) -> tuple[str, ...]:
    """The device of every engine process; none when the engine is to run in this one.

    By itself a server takes a process for each GPU, also when there is one only: a thread that parses JSON holds up
    kernel launches in the same process.
    """
    if settings.engines == 0 or not SUPPORTED or (settings.engines is None and settings.device == "cpu"):
        return ()
    gpus = _visible_gpus() if settings.device in ("auto", "cuda") else 0
    if gpus:
        return tuple(f"cuda:{index % gpus}" for index in range(settings.engines or gpus))
    device = "cpu" if settings.device == "auto" else settings.device
    return (device,) * (settings.engines or int(device != "cpu"))


def engine_specs(settings: Settings, devices: tuple[str, ...], directory: Path) -> tuple[EngineSpec, ...]:
    """One engine of the checkpoint in `directory` on each device. Raises ModelNotFound for the adapter's name."""
    # Here, so that the processes do not all download it.
    adapter = resolve_adapter(settings.adapter)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    common = settings.model_dump(mode="json", exclude={"api_keys", "engines"})
    specs = []
    for number, device in enumerate(devices):
        shared = max(1, cores // len(devices)) if device == "cpu" else None
        # A process sees its own GPU alone: what asks for "the" GPU, as kernel launches do, cannot take another one.
        environment = {VISIBLE: _nth_visible(device)} if device.startswith("cuda") else {}
        own = common | {
            "device": "cuda:0" if environment else device,
            "threads": settings.threads or shared,
            "adapter": adapter and str(adapter),
        }
        options = {"directory": str(directory), "settings": own}
        name = f"engine {number} on {device}"
        specs.append(EngineSpec(name, options, settings.token_budget, environment=environment))
    return tuple(specs)


def fleet_limits(settings: Settings) -> FleetLimits:
    return FleetLimits(
        max_queued=settings.max_queued_requests,
        window=settings.engine_window,
        slack_tokens=settings.token_budget,
        restart_delay_s=settings.restart_delay_s,
        restart_delay_max_s=settings.restart_delay_max_s,
    )


def _nth_visible(device: str) -> str:
    """What CUDA_VISIBLE_DEVICES has to be for this device, seen from here, to be the only one."""
    index = int(device.partition(":")[2] or 0)
    visible = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    return visible[index] if index < len(visible) else str(index)


def _visible_gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0
