"""Calibration of answers: what to fit, how to apply it, and the files it is shipped in."""

from openjev_server.calibration.files import CalibrationError, choose, read_calibrations
from openjev_server.calibration.fit import fit_temperature
from openjev_server.calibration.protocol import IDENTITY, Calibration, Identity
from openjev_server.calibration.temperature import TemperatureScaling

__all__ = [
    "IDENTITY",
    "Calibration",
    "CalibrationError",
    "Identity",
    "TemperatureScaling",
    "choose",
    "fit_temperature",
    "read_calibrations",
]
