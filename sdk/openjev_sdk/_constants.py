"""Names and defaults of the wire and of the environment."""

from __future__ import annotations

__all__ = [
    "API_KEY_VARIABLES",
    "BASE_URL_VARIABLES",
    "CALIBRATION_HEADER",
    "DEFAULT_BASE_URL",
    "DEFAULT_CONCURRENCY",
    "DEFAULT_MAX_RETRIES",
    "DEFAULT_MODEL",
    "DEFAULT_RETRY_BUDGET_S",
    "DEFAULT_TIMEOUT_S",
    "FINGERPRINT_HEADER",
    "KEEP_ALIVE_CONNECTIONS",
    "KEEP_ALIVE_S",
    "MAX_LEVELS",
    "MAX_OPTIONS",
    "MODELS_PATH",
    "MODEL_VARIABLES",
    "REQUEST_ID_HEADER",
    "RETRY_COUNT_HEADER",
    "SYSTEM_ONE_PATH",
]

BASE_URL_VARIABLES = ("OPENJEV_BASE_URL", "TYPESAFE_BASE_URL")
API_KEY_VARIABLES = ("OPENJEV_API_KEY", "TYPESAFE_API_KEY")
# OPENJEV_MODEL is the server's: the checkpoint that it loads.
MODEL_VARIABLES = ("OPENJEV_DEFAULT_MODEL", "TYPESAFE_DEFAULT_MODEL")

DEFAULT_BASE_URL = "http://127.0.0.1:8000"
DEFAULT_MODEL = "jev-latest"
# Three times the official client's: on a CPU host, `map` at its default concurrency queues for longer than 10 s.
DEFAULT_TIMEOUT_S = 30.0
DEFAULT_MAX_RETRIES = 2
DEFAULT_RETRY_BUDGET_S = 30.0
DEFAULT_CONCURRENCY = 16

SYSTEM_ONE_PATH = "/v1/systemone"
MODELS_PATH = "/v1/models"
REQUEST_ID_HEADER = "x-typesafe-request-id"
FINGERPRINT_HEADER = "x-openjev-fingerprint"
CALIBRATION_HEADER = "x-openjev-calibration"
RETRY_COUNT_HEADER = "OpenJev-Retry-Count"

KEEP_ALIVE_CONNECTIONS = 100
KEEP_ALIVE_S = 30.0

MAX_OPTIONS = 255
MAX_LEVELS = 10
