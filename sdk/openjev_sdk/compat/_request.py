"""Settings and requests of both clients."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, cast

import httpx

from openjev_sdk import _constants
from openjev_sdk._config import Timeout, resolve_setting
from openjev_sdk._errors import UsageError
from openjev_sdk._request import PreparedRequest, encode_json, runtime_name
from openjev_sdk._version import __version__
from openjev_sdk.compat._content import Content, JSONValue
from openjev_sdk.compat._errors import TypeSafeAPIConnectionError, TypeSafeAPITimeoutError, TypeSafeError
from openjev_sdk.compat._logging import logger
from openjev_sdk.compat._questions import Question, question_bodies
from openjev_sdk.compat.constants import DEFAULT_BASE_URL, DEFAULT_MODEL, DEFAULT_TIMEOUT

__all__ = [
    "LIMITS",
    "Compression",
    "Config",
    "connection_errors",
    "log_response",
    "models_request",
    "resolve_config",
    "system_one_request",
]

Compression = Literal["zstd", False]

LIMITS = httpx.Limits(max_connections=100, max_keepalive_connections=100, keepalive_expiry=_constants.KEEP_ALIVE_S)
MIN_COMPRESSED_BYTES = 1024
RETRY_COUNT_HEADER = "X-TypeSafe-Retry-Count"


@dataclass(frozen=True)
class Config:
    """Resolved settings of a client."""

    api_key: str | None = field(repr=False)
    base_url: str
    model: str
    timeout: Timeout
    headers: httpx.Headers = field(repr=False)
    compress: bool


def resolve_config(
    *,
    api_key: str | None,
    base_url: str | None,
    model: str | None,
    timeout: Timeout | None,
    headers: Mapping[str, str] | None,
    compression: Compression | None,
) -> Config:
    """Explicit > OPENJEV_* > TYPESAFE_* > default; of the environment, blank values count as unset.

    Raises:
        TypeSafeError: a blank or unprintable key, a timeout that is not positive, zstd that is not installed.
    """
    return Config(
        api_key=_key(api_key),
        base_url=(base_url or resolve_setting(None, _constants.BASE_URL_VARIABLES) or DEFAULT_BASE_URL).rstrip("/"),
        model=model if model is not None else resolve_setting(None, _constants.MODEL_VARIABLES) or DEFAULT_MODEL,
        timeout=_timeout(DEFAULT_TIMEOUT if timeout is None else timeout),
        headers=httpx.Headers(headers),
        compress=_compresses(compression),
    )


def system_one_request(
    config: Config,
    state: Content,
    questions: Mapping[str, Question],
    *,
    model: str | None,
    assets: object,
    timeout: Timeout | None,
    extra_headers: Mapping[str, str] | None,
    extra_body: Mapping[str, JSONValue | None] | None,
) -> PreparedRequest:
    """`POST /v1/systemone`.

    Raises:
        TypeSafeError: a request that cannot be sent, or one with images.
    """
    if assets:
        raise TypeSafeError("images are not supported")
    if state is None:
        raise TypeSafeError("a state is required")
    body: dict[str, Any] = {
        "state": state,
        "model": config.model if model is None else model,
        "questions": question_bodies(questions),
        **(extra_body or {}),
    }
    headers = _headers(config, extra_headers)
    headers["Content-Type"] = "application/json"
    content = _encode(body)
    if config.compress and len(content) >= MIN_COMPRESSED_BYTES:
        headers["Content-Encoding"] = "zstd"
        content = cast(bytes, _zstd().compress(content))
    return _prepared("POST", config, _constants.SYSTEM_ONE_PATH, headers, content, timeout)


def models_request(
    config: Config, *, timeout: Timeout | None, extra_headers: Mapping[str, str] | None
) -> PreparedRequest:
    """`GET /v1/models`."""
    return _prepared("GET", config, _constants.MODELS_PATH, _headers(config, extra_headers), None, timeout)


@contextmanager
def connection_errors(request: PreparedRequest) -> Iterator[None]:
    """Raise this module's exceptions for failures below HTTP."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise TypeSafeAPITimeoutError(request.timeout) from error
    except httpx.RequestError as error:
        raise TypeSafeAPIConnectionError(f"no response: {error or type(error).__name__}") from error


def log_response(request: PreparedRequest, response: httpx.Response, started: float) -> None:
    """One line per response; `started` is a `time.monotonic` moment."""
    milliseconds = (time.monotonic() - started) * 1000
    request_id = response.headers.get(_constants.REQUEST_ID_HEADER, "-")
    logger.info("%s %s: %d in %.0f ms, %s", request.method, request.url, response.status_code, milliseconds, request_id)


def _prepared(
    method: str, config: Config, path: str, headers: httpx.Headers, content: bytes | None, timeout: Timeout | None
) -> PreparedRequest:
    resolved = config.timeout if timeout is None else _timeout(timeout)
    return PreparedRequest(method, config.base_url + path, headers, content, resolved, RETRY_COUNT_HEADER)


def _headers(config: Config, extra: Mapping[str, str] | None) -> httpx.Headers:
    headers = config.headers.copy()
    headers.update(extra or {})
    headers.pop(RETRY_COUNT_HEADER, None)
    sdk = f"openjev-sdk/{__version__}"
    headers.update({"Accept": "application/json", "User-Agent": sdk, "X-TypeSafe-SDK": sdk})
    headers["X-TypeSafe-Runtime"] = runtime_name()
    if config.api_key is not None:
        headers["Authorization"] = f"Bearer {config.api_key}"
    return headers


def _key(explicit: str | None) -> str | None:
    key = explicit.strip() if explicit is not None else resolve_setting(None, _constants.API_KEY_VARIABLES)
    if key == "":
        raise TypeSafeError("the API key is blank")
    if key is not None and not all("!" <= character <= "~" for character in key):
        raise TypeSafeError("the API key may hold printable ASCII without spaces only")
    return key


def _timeout(timeout: Timeout) -> Timeout:
    if not isinstance(timeout, httpx.Timeout) and not (math.isfinite(timeout) and timeout > 0):
        raise TypeSafeError("timeout must be a positive number of seconds")
    return timeout


def _compresses(compression: Compression | None) -> bool:
    if compression is not None and compression is not False and compression != "zstd":
        raise TypeSafeError("compression must be 'zstd', False or None")
    if compression is False:
        return False
    try:
        _zstd()
    except ImportError as error:
        if compression == "zstd":
            raise TypeSafeError("zstd needs Python 3.14, or the package backports.zstd") from error
        return False
    return True


def _zstd() -> Any:
    try:
        return import_module("compression.zstd")
    except ImportError:
        return import_module("backports.zstd")


def _encode(body: Any) -> bytes:
    try:
        return encode_json(_finite(body))
    except (UsageError, RecursionError) as error:
        raise TypeSafeError(str(error)) from error


def _finite(value: Any) -> Any:
    """The official client spells the numbers that JSON lacks as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
