"""The logger: what was asked of which host, and how it ended; never headers or bodies."""

from __future__ import annotations

import logging
import os

from openjev_sdk.compat.constants import LOG_LEVEL_ENV

__all__ = ["logger"]

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}

logger = logging.getLogger("openjev_sdk.compat")
logger.addHandler(logging.NullHandler())
logger.setLevel(_LEVELS.get(os.environ.get(LOG_LEVEL_ENV, "").strip().lower(), logging.NOTSET))
