"""The client for threads and plain scripts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import httpx

from openjev_sdk._config import Timeout
from openjev_sdk._request import PreparedRequest
from openjev_sdk._retry import retry as run_retries
from openjev_sdk.compat._content import Content, JSONValue
from openjev_sdk.compat._questions import Question
from openjev_sdk.compat._request import (
    LIMITS,
    Compression,
    Config,
    connection_errors,
    log_response,
    models_request,
    resolve_config,
    system_one_request,
)
from openjev_sdk.compat._responses import ListModelsResponse, SystemOneResponse, decode_response
from openjev_sdk.compat._retry import RetryPolicy

__all__ = ["Models", "TypeSafeClient"]

ResponseT = TypeVar("ResponseT")


class Models:
    """`TypeSafeClient.models`."""

    def __init__(self, config: Config, http_client: httpx.Client, retry: RetryPolicy) -> None:
        self._config = config
        self._http = http_client
        self._retry = retry

    def list(
        self,
        *,
        retry: RetryPolicy | None = None,
        timeout: Timeout | None = None,
        extra_headers: Mapping[str, str] | None = None,
    ) -> ListModelsResponse:
        """The models that the host offers.

        Raises:
            TypeSafeAPIError: the host refused or failed, after the retries.
            TypeSafeAPIConnectionError: no response arrived, after the retries.
        """
        request = models_request(self._config, timeout=timeout, extra_headers=extra_headers)
        return _send(self._http, request, ListModelsResponse, retry or self._retry)


class TypeSafeClient:
    """The client of typesafe-sdk 0.7.5, for texts.

    Args:
        api_key: Unset: `OPENJEV_API_KEY`, `TYPESAFE_API_KEY`, none.
        model: Unset: `OPENJEV_DEFAULT_MODEL`, `TYPESAFE_DEFAULT_MODEL`, `jev-latest`.
        retry: Unset: `RetryPolicy()`.
        timeout: Per phase of an attempt. Unset: that of `http_client`, else 10 s.
        headers: More headers for every request.
        transport: Carries the requests; closed with the client.
        http_client: Sends the requests; closed with the client.
        base_url: Root of the host. Unset: `OPENJEV_BASE_URL`, `TYPESAFE_BASE_URL`, `http://127.0.0.1:8000`.
        compression: zstd for request bodies of 1 KiB and more. Unset: where zstd is installed.

    Raises:
        TypeSafeError: a setting that cannot work.
        ValueError: both `transport` and `http_client`.
    """

    def __init__(
        self,
        *,
        api_key: str | None = None,
        model: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: Timeout | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        http_client: httpx.Client | None = None,
        base_url: str | None = None,
        compression: Compression | None = None,
    ) -> None:
        if transport is not None and http_client is not None:
            raise ValueError("pass either transport or http_client")
        if timeout is None and http_client is not None:
            timeout = http_client.timeout
        self._config = resolve_config(
            api_key=api_key, base_url=base_url, model=model, timeout=timeout, headers=headers, compression=compression
        )
        self._retry = retry or RetryPolicy()
        self._http = http_client or httpx.Client(limits=LIMITS, transport=transport)

    @cached_property
    def models(self) -> Models:
        """The models of the host."""
        return Models(self._config, self._http, self._retry)

    @overload
    def system_one(
        self,
        state: Content,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        assets: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
        timeout: Timeout | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, JSONValue | None] | None = None,
        response_model: None = None,
    ) -> SystemOneResponse: ...

    @overload
    def system_one(
        self,
        state: Content,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        assets: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
        timeout: Timeout | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, JSONValue | None] | None = None,
        response_model: type[ResponseT],
    ) -> ResponseT: ...

    def system_one(
        self,
        state: Content,
        questions: Mapping[str, Question],
        *,
        model: str | None = None,
        assets: Mapping[str, Any] | None = None,
        retry: RetryPolicy | None = None,
        timeout: Timeout | None = None,
        extra_headers: Mapping[str, str] | None = None,
        extra_body: Mapping[str, JSONValue | None] | None = None,
        response_model: type[ResponseT] | None = None,
    ) -> SystemOneResponse | ResponseT:
        """Answer questions about a state.

        Args:
            state: A string, object or array.
            questions: Question objects or dictionaries by name.
            model: Other than the client's.
            assets: Images, which this client cannot send.
            retry: Other than the client's.
            timeout: Other than the client's.
            extra_headers: Beside the client's.
            extra_body: Top-level fields beside, or in place of, those above.
            response_model: A subclass of `SystemOneResponse`, or any pydantic model class, to parse the body into.

        Raises:
            TypeSafeAPIError: the host refused or failed, after the retries.
            TypeSafeAPIConnectionError: no response arrived, after the retries.
            TypeSafeError: the request cannot be sent.
        """
        request = system_one_request(
            self._config,
            state,
            questions,
            model=model,
            assets=assets,
            timeout=timeout,
            extra_headers=extra_headers,
            extra_body=extra_body,
        )
        policy = retry or self._retry
        if response_model is None:
            return _send(self._http, request, SystemOneResponse, policy)
        return _send(self._http, request, response_model, policy)

    def close(self) -> None:
        """Close the HTTP client, also one that was passed."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _send(http: httpx.Client, request: PreparedRequest, kind: type[ResponseT], policy: RetryPolicy) -> ResponseT:
    def attempt(retries: int) -> ResponseT:
        started = time.monotonic()
        with connection_errors(request):
            response = http.request(**request.arguments(retries), auth=None)
        log_response(request, response, started)
        return decode_response(response, kind)

    return run_retries(attempt, policy)
