"""Per-request switches. They ride in `OpenJev-*` headers, so the body stays what the dialect says it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast, get_args

from openjev_server.wire import errors

__all__ = ["CALIBRATION", "DECIMALS", "REPLICAS", "STEPS", "LayoutName", "Overrides", "parse_overrides"]

LayoutName = Literal["isolated", "grouped"]
STEPS = range(1, 9)
REPLICAS = range(1, 9)
DECIMALS = range(2, 7)
CALIBRATION = ("on", "off")

_LAYOUT_HEADER = "OpenJev-Layout"
_STEPS_HEADER = "OpenJev-Steps"
_REPLICAS_HEADER = "OpenJev-Replicas"
_DECIMALS_HEADER = "OpenJev-Decimals"
_CALIBRATION_HEADER = "OpenJev-Calibration"


@dataclass(frozen=True, slots=True)
class Overrides:
    """How one request is evaluated and printed."""

    layout: LayoutName = "isolated"
    steps: int = 2
    replicas: int = 1
    decimals: int = 2
    calibrated: bool = True
    """False: probabilities as the model gives them, also where there is a calibration."""


def parse_overrides(headers: Mapping[str, str], defaults: Overrides, *, allowed: bool) -> Overrides:
    """`defaults` with what the headers ask for; header names in any case, blank values are ignored.

    Raises `WireError` (400, naming the header) for a bad value, and for any such header when they are not allowed:
    an ignored switch would be a wrong answer.
    """
    given = {name.lower(): value.strip() for name, value in headers.items()}

    def asked(header: str) -> str | None:
        value = given.get(header.lower())
        if value and not allowed:
            raise errors.invalid_header(header, "overrides are turned off on this server.")
        return value

    layout, steps, replicas, decimals = map(asked, (_LAYOUT_HEADER, _STEPS_HEADER, _REPLICAS_HEADER, _DECIMALS_HEADER))
    calibration = asked(_CALIBRATION_HEADER)
    return Overrides(
        layout=_layout(layout.lower()) if layout else defaults.layout,
        steps=_number(_STEPS_HEADER, steps, STEPS) if steps else defaults.steps,
        replicas=_number(_REPLICAS_HEADER, replicas, REPLICAS) if replicas else defaults.replicas,
        decimals=_number(_DECIMALS_HEADER, decimals, DECIMALS) if decimals else defaults.decimals,
        calibrated=_switch(calibration.lower()) if calibration else defaults.calibrated,
    )


def _switch(value: str) -> bool:
    if value not in CALIBRATION:
        raise errors.invalid_header(_CALIBRATION_HEADER, f"must be one of: {', '.join(CALIBRATION)}.")
    return value == "on"


def _layout(value: str) -> LayoutName:
    for name in get_args(LayoutName):
        if value == name:
            return cast(LayoutName, name)
    raise errors.invalid_header(_LAYOUT_HEADER, f"must be one of: {', '.join(get_args(LayoutName))}.")


def _number(header: str, value: str, values: range) -> int:
    if len(value) <= 3 and value.isascii() and value.isdigit() and int(value) in values:
        return int(value)
    raise errors.invalid_header(header, f"must be a whole number from {values.start} to {values.stop - 1}.")
