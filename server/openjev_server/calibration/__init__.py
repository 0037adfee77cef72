"""Calibration of answers: what to fit, how to apply it, and the files it is shipped in."""

from openjev_server.calibration.files import CalibrationError
from openjev_server.calibration.find import Calibrations, Running, find_calibrations, refuse_other_template
from openjev_server.calibration.protocol import IDENTITY, UNCALIBRATED, Calibration, mark

__all__ = [
    "IDENTITY",
    "UNCALIBRATED",
    "Calibration",
    "CalibrationError",
    "Calibrations",
    "Running",
    "find_calibrations",
    "mark",
    "refuse_other_template",
]
