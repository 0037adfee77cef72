"""Header names and sizes of the HTTP side."""

from __future__ import annotations

__all__ = [
    "API_PREFIX",
    "CALIBRATION_HEADER",
    "CLIENT",
    "EXPOSED_HEADERS",
    "FINGERPRINT_HEADER",
    "GZIP_LEVEL",
    "INLINE_BODY_BYTES",
    "REQUEST_ID_HEADER",
    "SERVER_TIMING_HEADER",
]

API_PREFIX = "/v1/"
REQUEST_ID_HEADER = "x-typesafe-request-id"
FINGERPRINT_HEADER = "x-openjev-fingerprint"
CALIBRATION_HEADER = "x-openjev-calibration"
SERVER_TIMING_HEADER = "server-timing"
EXPOSED_HEADERS = (REQUEST_ID_HEADER, FINGERPRINT_HEADER, CALIBRATION_HEADER, SERVER_TIMING_HEADER, "retry-after")
"""What a browser's script may read of a cross-origin answer."""

CLIENT = "openjev_client"
"""Under this name the scope's state says whose key a request came with."""

GZIP_LEVEL = 5

INLINE_BODY_BYTES = 16 * 1024
"""Larger (or compressed) bodies are parsed and compiled in a worker thread: 16 KiB take about 5 ms."""
