"""What both clients do around an HTTP exchange."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from openjev_sdk._constants import KEEP_ALIVE_CONNECTIONS, KEEP_ALIVE_S
from openjev_sdk._errors import APIConnectionError, APITimeoutError, UsageError, api_error, endpoint_of
from openjev_sdk._request import PreparedRequest

__all__ = ["LIMITS", "check_open", "checked", "connection_errors"]

# No bound on open connections: `map` bounds its own concurrency, and a pool that is full would look like a timeout.
LIMITS = httpx.Limits(
    max_connections=None, max_keepalive_connections=KEEP_ALIVE_CONNECTIONS, keepalive_expiry=KEEP_ALIVE_S
)


@contextmanager
def connection_errors(request: PreparedRequest) -> Iterator[None]:
    """Raise this package's exceptions for failures below HTTP.

    Raises:
        APITimeoutError: a phase of the exchange took longer than the request's timeout.
        APIConnectionError: everything else that kept a response from arriving.
    """
    place = endpoint_of(request.method, request.url)
    try:
        yield
    except httpx.TimeoutException as error:
        raise APITimeoutError(f"{place}: no response in time (timeout {request.timeout})") from error
    except httpx.RequestError as error:
        raise APIConnectionError(f"{place}: {error or type(error).__name__}") from error


def check_open(closed: bool) -> None:
    """Raises UsageError for a client that has been closed."""
    if closed:
        raise UsageError("this client is closed; open a new one")


def checked(response: httpx.Response) -> httpx.Response:
    """The response, if it is a success.

    Raises:
        APIError: one of its classes, by status.
    """
    if not response.is_success:
        raise api_error(response)
    return response
