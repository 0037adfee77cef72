"""The retry settings of typesafe-sdk, as a policy of this package's retry loop."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from openjev_sdk._errors import APIError
from openjev_sdk._retry import Backoff, Clock, retry_after_s
from openjev_sdk.compat._errors import (
    TypeSafeAPIConnectionError,
    TypeSafeAPIError,
    TypeSafeAPITimeoutError,
    TypeSafeError,
)

__all__ = ["RetryPolicy"]


@dataclass(frozen=True)
class RetryPolicy:
    """When to try again.

    Raises:
        TypeSafeError: a value out of range.
    """

    max_retries: int = 2
    """After the first attempt."""
    backoff_initial: float = 0.5
    """Seconds before the first retry, doubled for each further one; 0 for no wait."""
    backoff_max: float = 5.0
    """Seconds that no wait exceeds."""
    backoff_jitter: float = 0.25
    """The largest part of a wait that chance takes off, 0 to 1."""
    http_statuses: set[int] = field(default_factory=lambda: {408, 429, *range(500, 600)})
    respect_retry_after: bool = True
    api_connection_error: bool = True
    api_timeout_error: bool = True
    exceptions: set[type[BaseException]] = field(default_factory=set)
    """Retried in addition."""
    predicate: Callable[[BaseException], bool] | None = None
    """Retried in addition where it says so."""
    timeout: float | None = 30.0
    """Seconds from the first attempt at which no retry starts any more; None for no limit."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_retries, int) or self.max_retries < 0:
            raise TypeSafeError("max_retries must be an integer of 0 or more")
        for name, seconds in (("backoff_initial", self.backoff_initial), ("backoff_max", self.backoff_max)):
            if not math.isfinite(seconds) or seconds < 0:
                raise TypeSafeError(f"{name} must be 0 or more seconds")
        if not 0 <= self.backoff_jitter <= 1:
            raise TypeSafeError("backoff_jitter must be from 0 to 1")
        if self.timeout is not None and not (math.isfinite(self.timeout) and self.timeout > 0):
            raise TypeSafeError("timeout must be a positive number of seconds")

    def wait_s(self, error: Exception, *, attempt: int, elapsed_s: float, clock: Clock) -> float | None:
        """Seconds to wait after `attempt` (1: the first) failed, None to give up."""
        if attempt > self.max_retries or not self._retries(error):
            return None
        wait = None
        if self.respect_retry_after and isinstance(error, APIError):
            wait = retry_after_s(error.headers, clock.now())
        if wait is None:
            backoff = Backoff(self.backoff_initial, self.backoff_max, self.backoff_jitter)
            wait = backoff.wait_s(attempt, clock.random())
        return None if self.timeout is not None and elapsed_s + wait >= self.timeout else wait

    def _retries(self, error: Exception) -> bool:
        match error:
            case TypeSafeAPITimeoutError():
                usual = self.api_timeout_error
            case TypeSafeAPIConnectionError():
                usual = self.api_connection_error
            case TypeSafeAPIError(status=status):
                usual = status in self.http_statuses
            case _:
                usual = False
        if usual or isinstance(error, tuple(self.exceptions)):
            return True
        return self.predicate is not None and self.predicate(error)
