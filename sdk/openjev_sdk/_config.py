"""Settings of a client: what was passed, else the environment, else the defaults."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from openjev_sdk._constants import (
    API_KEY_VARIABLES,
    BASE_URL_VARIABLES,
    DEFAULT_BASE_URL,
    DEFAULT_MODEL,
    MODEL_VARIABLES,
)
from openjev_sdk._errors import UsageError

__all__ = ["Config", "Timeout", "checked_timeout", "checked_url", "resolve_config", "resolve_setting"]

MAX_PORT = 65_535

Timeout = float | httpx.Timeout
"""Seconds for each of connect, write, read and wait-for-a-connection; or those four on their own."""


@dataclass(frozen=True, slots=True)
class Config:
    """Resolved settings."""

    base_url: str
    """Root of the host, without a trailing slash and without `/v1`."""
    api_key: str | None = field(repr=False)
    model: str
    timeout: Timeout
    headers: httpx.Headers = field(repr=False)


def resolve_config(
    *,
    base_url: str | None,
    api_key: str | None,
    model: str | None,
    timeout: Timeout,
    headers: Mapping[str, str] | None,
) -> Config:
    """Resolve each setting on its own: explicit > OPENJEV_* > TYPESAFE_* > default. Blank values count as unset.

    Raises:
        UsageError: a base URL that is not http(s) or has an impossible port, a key with spaces or non-ASCII, a timeout
            that is not positive.
    """
    return Config(
        base_url=checked_url(resolve_setting(base_url, BASE_URL_VARIABLES) or DEFAULT_BASE_URL),
        api_key=_checked_key(resolve_setting(api_key, API_KEY_VARIABLES)),
        model=resolve_setting(model, MODEL_VARIABLES) or DEFAULT_MODEL,
        timeout=checked_timeout(timeout),
        headers=httpx.Headers(headers),
    )


def checked_timeout(timeout: Timeout) -> Timeout:
    """The timeout, if it is one.

    Raises:
        UsageError: not a positive finite number.
    """
    if not isinstance(timeout, httpx.Timeout) and not (math.isfinite(timeout) and timeout > 0):
        raise UsageError(f"timeout must be a positive number of seconds, not {timeout!r}")
    return timeout


def resolve_setting(explicit: str | None, variables: tuple[str, ...]) -> str | None:
    """The first that is not blank of what was passed and the environment variables; None when there is none."""
    candidates = (explicit, *(os.environ.get(name) for name in variables))
    return next((stripped for value in candidates if value is not None and (stripped := value.strip())), None)


def checked_url(text: str, *, name: str = "base_url") -> str:
    """The root of the host, without a trailing slash and without `/v1`; `name` is what errors call it.

    Raises:
        UsageError: not http(s), or an impossible port.
    """
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise UsageError(f"{name} {text!r} is not a URL: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise UsageError(f"{name} must start with http:// or https://, not {text!r}")
    if url.port is not None and not 0 < url.port <= MAX_PORT:
        raise UsageError(f"{name} {text!r}: a port is a number from 1 to {MAX_PORT}")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")


def _checked_key(key: str | None) -> str | None:
    if key is not None and not all("!" <= character <= "~" for character in key):
        raise UsageError("the API key may hold printable ASCII without spaces only")
    return key
