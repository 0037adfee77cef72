"""The requests that both clients send."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from openjev_sdk._config import Config, Timeout, checked_timeout
from openjev_sdk._constants import MODELS_PATH, RETRY_COUNT_HEADER, SYSTEM_ONE_PATH
from openjev_sdk._errors import UsageError
from openjev_sdk._options import Options
from openjev_sdk._questions import Questions, Text, question_bodies
from openjev_sdk._version import __version__

__all__ = ["PreparedRequest", "encode_json", "models_request", "runtime_name", "system_one_request"]


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """One request, the same on every attempt but for the retry count."""

    method: str
    url: str
    headers: httpx.Headers
    content: bytes | None
    timeout: Timeout
    retry_count_header: str = RETRY_COUNT_HEADER

    def arguments(self, retries: int) -> dict[str, Any]:
        """Arguments of `httpx.Client.request` for the attempt after that many retries."""
        headers = self.headers.copy()
        if retries:
            headers[self.retry_count_header] = str(retries)
        return {
            "method": self.method,
            "url": self.url,
            "headers": headers,
            "content": self.content,
            "timeout": self.timeout,
        }


def system_one_request(
    config: Config,
    state: Text,
    questions: Questions,
    *,
    model: str | None,
    options: Options | None,
    timeout: Timeout | None,
) -> PreparedRequest:
    """`POST /v1/systemone`.

    Raises:
        UsageError: a state, question or timeout that cannot be sent.
    """
    if state is None:
        raise UsageError("the state must be a string, an object or an array, not None")
    body = {
        "state": state,
        "model": config.model if model is None else model,
        "questions": question_bodies(questions),
    }
    headers = _headers(config)
    headers.update((options or Options()).headers())
    headers["Content-Type"] = "application/json"
    return PreparedRequest(
        "POST", config.base_url + SYSTEM_ONE_PATH, headers, encode_json(body), _timeout(config, timeout)
    )


def models_request(config: Config, *, timeout: Timeout | None) -> PreparedRequest:
    """`GET /v1/models`."""
    return PreparedRequest("GET", config.base_url + MODELS_PATH, _headers(config), None, _timeout(config, timeout))


def runtime_name() -> str:
    """The interpreter and platform, for the host's statistics."""
    return f"python/{platform.python_version()} ({sys.platform}; {platform.machine()})"


def encode_json(body: Any) -> bytes:
    """Compact UTF-8 JSON of mappings, sequences and plain values.

    Raises:
        UsageError: something that JSON cannot hold, such as NaN, a set or half a surrogate pair.
    """
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the request cannot be encoded as JSON: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise TypeError(f"values of type {type(value).__name__} are not JSON")


def _headers(config: Config) -> httpx.Headers:
    headers = config.headers.copy()
    headers.setdefault("User-Agent", f"openjev-sdk/{__version__} {runtime_name()}")
    headers["Accept"] = "application/json"
    # Only what the standard library can undo; httpx would also offer whatever else happens to be installed.
    headers["Accept-Encoding"] = "gzip, deflate"
    if config.api_key is not None:
        headers["Authorization"] = f"Bearer {config.api_key}"
    return headers


def _timeout(config: Config, timeout: Timeout | None) -> Timeout:
    return config.timeout if timeout is None else checked_timeout(timeout)
