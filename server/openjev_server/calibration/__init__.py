"""Calibration of answers. So far only the identity."""

from openjev_server.calibration.protocol import IDENTITY, Calibration, Identity

__all__ = ["IDENTITY", "Calibration", "Identity"]
