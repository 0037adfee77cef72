"""`doctor`: what this machine, this checkpoint and these settings come to, and what is wrong or unsafe about them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from openjev_server.bundle import ModelBundle, ModelNotFound, load_bundle, resolve_adapter, resolve_model
from openjev_server.calibration import CalibrationError
from openjev_server.canvas.chat import read_chat_template
from openjev_server.canvas.compile import Compiler
from openjev_server.checkpoint import open_engine
from openjev_server.engine.config import ConfigError
from openjev_server.engine.hardware import Hardware, describe_hardware, peak_bytes, resident_bytes
from openjev_server.engine.int8 import measured_gain
from openjev_server.engine.loading import Checkpoint, choose_device, choose_dtype, open_checkpoint
from openjev_server.engine.protocol import Engine, EngineError
from openjev_server.engine.sources import stray_shards
from openjev_server.engine.weights import CheckpointError, shown_faults
from openjev_server.fleet.plan import engine_devices
from openjev_server.hub import commit_of
from openjev_server.self_check import FILE_NAME as REFERENCE_FILE
from openjev_server.self_check import record, run_self_check
from openjev_server.settings import Settings, is_loopback
from openjev_server.writable import CannotWrite, check_files

__all__ = ["EffectiveSetting", "Finding", "Report", "Status", "effective_settings", "examine", "unsafe_settings"]

ENV_PREFIX = "OPENJEV_"
CLIENT_VARIABLES = frozenset({"OPENJEV_BASE_URL", "OPENJEV_API_KEY", "OPENJEV_DEFAULT_MODEL"})
"""Variables of the SDK, which are no settings of the server."""
WORTH_TELLING = 1.3
"""How many times faster other arithmetic has to be for `doctor` to name it."""

Progress = Callable[[str], None]


class Status(StrEnum):
    ok = "ok"
    note = "note"
    """Works, and worth knowing."""
    unsafe = "unsafe"
    """Works, and somebody could be hurt by it."""
    broken = "broken"
    """Does not work."""


@dataclass(frozen=True, slots=True)
class Finding:
    topic: str
    status: Status
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)
    """The numbers of the text, for programs."""


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    name: str
    value: Any
    source: str
    """`default`, `flag`, or the environment variable."""


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    settings: tuple[EffectiveSetting, ...]
    hardware: Hardware

    @property
    def broken(self) -> bool:
        return any(finding.status is Status.broken for finding in self.findings)


def examine(
    settings: Settings,
    *,
    flags: frozenset[str] = frozenset(),
    progress: Progress | None = None,
    record_reference: bool = False,
) -> Report:
    """Loads the checkpoint, asks it the fixed questions, and looks at the settings; never raises for what is wrong.

    Args:
        settings: as a server would have them.
        flags: names of the settings that came from flags.
        progress: called with the name of every loaded tensor.
        record_reference: writes this machine's answers as the checkpoint's reference before checking.
    """
    findings = list(_checkpoint(settings, progress, record_reference=record_reference))
    findings.append(_engines(settings))
    findings += unsafe_settings(settings)
    findings += _unknown_variables(os.environ)
    return Report(tuple(findings), effective_settings(settings, os.environ, flags), describe_hardware())


def effective_settings(
    settings: Settings, environment: Mapping[str, str], flags: frozenset[str] = frozenset()
) -> tuple[EffectiveSetting, ...]:
    """Every setting with its value and where that comes from. Keys are shown by name only."""
    present = {name.upper() for name, value in environment.items() if value.strip()}
    effective = []
    for name in Settings.model_fields:
        variable = f"{ENV_PREFIX}{name.upper()}"
        source = "flag" if name in flags else variable if variable in present else "default"
        value = getattr(settings, name)
        if name == "api_keys":
            value = [key.name for key in value]
        effective.append(EffectiveSetting(name, list(value) if isinstance(value, tuple) else value, source))
    return tuple(effective)


def unsafe_settings(settings: Settings) -> Iterator[Finding]:
    """What a stranger could do with a server of these settings."""
    topic = "exposure"
    address = f"{settings.host}:{settings.port}"
    public = not is_loopback(settings.host)
    if not public:
        yield Finding(topic, Status.ok, f"{address} can be reached from this machine only")
    elif settings.api_keys:
        keys = f"{len(settings.api_keys)} API key{'s' if len(settings.api_keys) > 1 else ''}"
        yield Finding(topic, Status.ok, f"{address} is open to the network and asks for one of {keys}")
        yield Finding(
            topic, Status.note, "keys and states travel as plain HTTP: put a proxy with TLS in front of the server"
        )
    elif settings.allow_unauthenticated:
        yield Finding(topic, Status.unsafe, f"anyone who reaches {address} may ask: allow_unauthenticated is on")
    else:
        yield Finding(
            topic, Status.broken, f"`serve` refuses to listen on {settings.host} without keys: set OPENJEV_API_KEYS"
        )
    if "*" in settings.cors_origins and not settings.api_keys:
        yield Finding(
            topic, Status.unsafe, "cors_origins is * without keys: every web page that a browser opens may ask"
        )
    if settings.allow_overrides and public:
        yield Finding(
            topic, Status.note, "allow_overrides is on: a request may take 8 steps and 8 replicas, many times the work"
        )
    if settings.prior_correction and public and not settings.api_keys:
        text = "prior_correction without keys: how one client's states come out changes the answers of the others"
        yield Finding(topic, Status.unsafe, text)
    if settings.unknown_fields == "ignore":
        yield Finding(topic, Status.note, "unknown_fields is ignore: a misspelt field of a request goes unnoticed")


def _checkpoint(settings: Settings, progress: Progress | None, *, record_reference: bool) -> Iterator[Finding]:
    topic = "checkpoint"
    try:
        directory = resolve_model(settings.model, revision=settings.model_revision)
        adapter = resolve_adapter(settings.adapter)
        bundle = load_bundle(directory, template=settings.template)
        device = choose_device(settings.device)
        dtype, why = choose_dtype(device, settings.dtype)
        if record_reference:
            check_files(directory / REFERENCE_FILE)
    except (ModelNotFound, RuntimeError, OSError, CannotWrite) as error:
        yield Finding(topic, Status.broken, str(error))
        return
    name = str(dtype).removeprefix("torch.")
    yield Finding("dtype", Status.ok, f"{name} on {device}: {why}", {"dtype": name, "device": str(device), "why": why})
    yield from _integers(settings, device, dtype)
    held, started = resident_bytes(), time.perf_counter()
    tensors: Finding | None = None
    try:
        with closing(open_checkpoint(directory, adapter=adapter)) as checkpoint:
            tensors = _tensors(checkpoint, directory)
            remarks = [*_remarks(checkpoint, bundle, settings), *_strays(directory)]
        engine = open_engine(directory, settings, progress)
    except (CheckpointError, ConfigError, OSError, RuntimeError, AssertionError) as error:
        yield from _not_loaded(bundle, tensors, error)
        return
    yield tensors
    yield from remarks
    yield _loaded(bundle, engine, time.perf_counter() - started, held)
    yield _turns(bundle)
    yield _calibrated(bundle, engine, settings)
    yield from _asked(engine, bundle, directory, record_reference=record_reference)
    limit = settings.token_limits(engine.info.device).prompt
    if limit > engine.info.max_positions:
        text = f"max_prompt_tokens is {limit}, the model takes {engine.info.max_positions}: that is the limit"
        yield Finding(topic, Status.note, text)
    engine.close()


def _integers(settings: Settings, device: torch.device, dtype: torch.dtype) -> Iterator[Finding]:
    """Whether 8-bit products would pay."""
    if settings.weights != "auto" or device.type != "cpu" or dtype != torch.float32:
        return
    gain = measured_gain()
    if gain is not None and gain >= WORTH_TELLING:
        text = f"OPENJEV_WEIGHTS=int8 multiplies {gain:.1f} times as fast here, and changes some answers (README)"
        yield Finding("weights", Status.note, text, {"int8_times_faster": round(gain, 2)})


def _not_loaded(bundle: ModelBundle, tensors: Finding | None, error: Exception) -> Iterator[Finding]:
    """Why; faults of tensors, which headers or values may have shown, are listed once, with the tensors."""
    faults = list(error.faults) if isinstance(error, CheckpointError) else []
    why = str(error)
    if tensors is not None and isinstance(error, CheckpointError) and error.of_tensors:
        text = f"{tensors.text}, {len(faults)} fault{'s' if len(faults) > 1 else ''}: {shown_faults(faults)}"
        yield replace(tensors, status=Status.broken, text=text, data={**tensors.data, "faults": faults})
        why = "its tensors are at fault"
    elif tensors is not None:
        yield tensors
    yield Finding("checkpoint", Status.broken, f"{bundle.id} does not load: {why}", {"faults": faults})


def _remarks(checkpoint: Checkpoint, bundle: ModelBundle, settings: Settings) -> Iterator[Finding]:
    """What of an adapter works, and may not be what was meant."""
    if checkpoint.adapter is None:
        return
    topic, adapter = "adapter", checkpoint.adapter
    if idle := adapter.without_effect:
        named = ", ".join(idle[:3]) + (f" and {len(idle) - 3} more" if len(idle) > 3 else "")
        yield Finding(topic, Status.note, f"changes nothing in {named}: it adds zero", {"without_effect": list(idle)})
    names = {Path(settings.model).name, bundle.id.removeprefix("openjev-")}
    if adapter.base is not None and Path(adapter.base).name not in names:
        text = f"was trained on {adapter.base}, and is merged into {settings.model}"
        yield Finding(topic, Status.note, text, {"base": adapter.base})


def _strays(directory: Path) -> Iterator[Finding]:
    if strays := stray_shards(directory):
        text = f"{', '.join(strays)} in the directory, but not in the index: not read"
        yield Finding("tensors", Status.note, text, {"strays": strays})


def _tensors(checkpoint: Checkpoint, directory: Path) -> Finding:
    """What the files hold, by their headers; their values are checked while they are loaded."""
    plan = checkpoint.plan
    size = sum(plan.dtypes.values())
    kinds = ", ".join(f"{dtype} {part / 1e9:.2f} GB" for dtype, part in sorted(plan.dtypes.items()))
    text = f"{plan.consumed} ({kinds})"
    for prefix, count in plan.skipped.items():
        text += f", {count} skipped as {prefix}*"
    if checkpoint.adapter is not None:
        text += f", {len(checkpoint.adapter.changes)} changed by the adapter"
    data = {
        "consumed": plan.consumed,
        "skipped": dict(plan.skipped),
        "faults": list(plan.faults),
        "bytes": size,
        "bytes_by_dtype": dict(plan.dtypes),
        "stored": checkpoint.stored.value,
        "commit": commit_of(directory),
    }
    return Finding("tensors", Status.ok, text, data)


def _turns(bundle: ModelBundle) -> Finding:
    """Where the markup around a prompt comes from."""
    topic, own = "chat template", read_chat_template(bundle.directory) is not None
    if bundle.template.chat:
        return Finding(topic, Status.ok, "the checkpoint's own", {"present": True})
    text = f"{'there is one, but ' if own else 'none: '}{bundle.template.id} writes its own markup"
    return Finding(topic, Status.ok, text, {"present": own})


def _loaded(bundle: ModelBundle, engine: Engine, seconds: float, held: int | None) -> Finding:
    peak = peak_bytes()
    added = None if held is None or peak is None else max(0, peak - held)
    memory = "" if added is None else f", at most {added / 2**20:.0f} MiB more memory"
    commit = commit_of(bundle.directory)
    text = f"{bundle.id}@{engine.info.weights_hash}, template {bundle.template.id}: loaded in {seconds:.1f} s{memory}"
    if commit is not None:
        text += f", commit {commit}"
    data = {
        "id": bundle.id,
        "weights": engine.info.weights_hash,
        "template": bundle.template.id,
        "seconds": round(seconds, 3),
        "peak_bytes_added": added,
    }
    return Finding("checkpoint", Status.ok, text, data)


def _calibrated(bundle: ModelBundle, engine: Engine, settings: Settings) -> Finding:
    """Which answers are calibrated, by what, or why none are."""
    topic = "calibration"
    try:
        found = bundle.calibrations(engine.info, setting=settings.calibration, adapter=settings.adapter)
    except CalibrationError as error:
        return Finding(topic, Status.broken, str(error))
    listing = found.listing()
    if not found.entries:
        text = f"none, probabilities are as the model gives them: {listing['reason']}"
        return Finding(topic, Status.note, text, listing)
    entries = [
        f"{entry['layout']} {entry['steps']} step{'s' if entry['steps'] > 1 else ''} ({', '.join(entry['types'])}) "
        f"{entry['hash']}, fitted on {entry['fitted_on']}"
        for entry in listing["entries"]
    ]
    note = "" if found.note is None else f"; {found.note}"
    return Finding(topic, Status.ok, f"{found.source}: {'; '.join(entries)}{note}", listing)


def _asked(engine: Engine, bundle: ModelBundle, directory: Path, *, record_reference: bool) -> Iterator[Finding]:
    topic = "self-check"
    compiler = Compiler(bundle.tokenizer, bundle.template)
    try:
        if record_reference:
            yield Finding(topic, Status.note, f"wrote {record(engine, compiler, directory)}")
        check = run_self_check(engine, compiler, directory)
    except (EngineError, ValueError, OSError) as error:
        yield Finding(topic, Status.broken, str(error))
        return
    data = {
        "difference": round(check.difference, 6),
        "tolerance": check.tolerance,
        "compared_with_reference": check.compared,
    }
    for problem in check.problems:
        yield Finding(topic, Status.broken, problem, data)
    if not check.problems:
        what = "as recorded with the checkpoint" if check.compared else "the same alone and in a batch (no reference)"
        text = f"answers are {what}, largest difference {check.difference:.4f} of {check.tolerance} allowed"
        yield Finding(topic, Status.ok, text, data)


def _engines(settings: Settings) -> Finding:
    devices = engine_devices(settings)
    data = {"devices": list(devices)}
    if not devices:
        return Finding("engines", Status.ok, "`serve` computes in its own process", data)
    text = f"`serve` computes in {len(devices)} process{'es' if len(devices) > 1 else ''}: {', '.join(devices)}"
    if len(set(devices)) == len(devices):
        return Finding("engines", Status.ok, text, data)
    return Finding("engines", Status.note, f"{text}; each holds the whole model, also where two share a device", data)


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[Finding]:
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields} | CLIENT_VARIABLES
    for name in sorted(environment):
        if name.upper().startswith(ENV_PREFIX) and name.upper() not in known:
            yield Finding("settings", Status.note, f"{name} in the environment is no setting, and is ignored")
