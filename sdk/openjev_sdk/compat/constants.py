"""Names of environment variables, and defaults.

The names are those of typesafe-sdk. `OPENJEV_BASE_URL`, `OPENJEV_API_KEY` and `OPENJEV_DEFAULT_MODEL` come before
them, and the default host is this machine: changing an import never sends data to somebody else's host.
"""

from __future__ import annotations

from openjev_sdk import _constants

__all__ = [
    "API_KEY_ENV",
    "BASE_URL_ENV",
    "DEFAULT_BASE_URL",
    "DEFAULT_MODEL",
    "DEFAULT_MODEL_ENV",
    "DEFAULT_TIMEOUT",
    "LOG_LEVEL_ENV",
]

API_KEY_ENV = "TYPESAFE_API_KEY"
BASE_URL_ENV = "TYPESAFE_BASE_URL"
DEFAULT_MODEL_ENV = "TYPESAFE_DEFAULT_MODEL"
LOG_LEVEL_ENV = "TYPESAFE_LOG_LEVEL"
"""debug, info, warn, warning, error or off: the level of this package's logger, set at import."""

DEFAULT_BASE_URL = _constants.DEFAULT_BASE_URL
DEFAULT_MODEL = _constants.DEFAULT_MODEL
DEFAULT_TIMEOUT = 10.0
"""Seconds for each phase of one attempt."""
