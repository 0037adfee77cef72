"""What this machine computes with."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["CudaDevice", "Hardware", "describe_hardware", "memory_status", "peak_bytes", "resident_bytes"]


@dataclass(frozen=True, slots=True)
class CudaDevice:
    name: str
    memory_bytes: int
    capability: str


@dataclass(frozen=True, slots=True)
class Hardware:
    processor: str
    cores: int
    """Those that this process may use."""
    threads: int
    """Those that torch takes for one operation."""
    memory_bytes: int | None
    amx: bool
    avx512_bf16: bool
    avx512: bool
    avx2: bool
    cuda: tuple[CudaDevice, ...]
    python: str
    torch: str


def describe_hardware() -> Hardware:
    """Asks the operating system and torch."""
    return Hardware(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        memory_bytes=_memory_bytes(),
        amx=torch.cpu._is_amx_tile_supported(),
        avx512_bf16=torch.cpu._is_avx512_bf16_supported(),
        avx512=torch.cpu._is_avx512_supported(),
        avx2=torch.cpu._is_avx2_supported(),
        cuda=tuple(_cuda_device(index) for index in range(torch.cuda.device_count())),
        python=platform.python_version(),
        torch=torch.__version__,
    )


def resident_bytes() -> int | None:
    """Memory that this process holds now; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int | None:
    """The most memory that this process ever held; None where the system does not say."""
    # Not getrusage: on Linux its peak starts from that of the parent process.
    return memory_status("VmHWM")


def memory_status(field: str) -> int | None:
    """Bytes of a field of /proc/self/status (`VmRSS`, `VmHWM`, `RssAnon`, ...); None where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    except (OSError, StopIteration):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _cuda_device(index: int) -> CudaDevice:
    properties = torch.cuda.get_device_properties(index)
    return CudaDevice(properties.name, properties.total_memory, f"{properties.major}.{properties.minor}")
