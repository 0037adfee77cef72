"""What ran, and how much memory it took at most."""

from __future__ import annotations

__all__ = ["describe_machine", "peak_memory_gib"]

GIB = 2**30


def describe_machine() -> str:
    """Processor, GPUs and versions in one line."""
    import torch
    from openjev_server.engine.hardware import describe_hardware

    hardware = describe_hardware()
    names = [gpu.name for gpu in hardware.cuda] or [f"{hardware.processor}, {hardware.threads} threads"]
    return f"{', '.join(names)}, torch {torch.__version__}, Python {hardware.python}"


def peak_memory_gib() -> dict[str, float]:
    """Of this process so far: `host`, and `cuda:N` (allocated) for every device that was used."""
    import torch
    from openjev_server.engine.hardware import peak_bytes

    host = peak_bytes()
    peaks = {} if host is None else {"host": host / GIB}
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            if taken := torch.cuda.max_memory_allocated(index):
                peaks[f"cuda:{index}"] = taken / GIB
    return peaks
