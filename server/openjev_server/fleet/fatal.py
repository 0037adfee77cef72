"""Requests that ended two engines: clients retry by themselves, and each retry would end two more."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

from openjev_server.engine.protocol import EngineRequest
from openjev_server.fleet.codec import encode_request

__all__ = ["FatalRequests"]

REMEMBERED = 1024
REMEMBERED_S = 3600.0
"""The cause may have been another one, so that nothing is refused for ever."""


class FatalRequests:
    """Remembers requests by a hash of their content, the latest ones for an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def add(self, request: EngineRequest) -> None:
        self._until[_digest(request)] = self._clock() + REMEMBERED_S
        while len(self._until) > REMEMBERED:
            self._until.popitem(last=False)

    def __contains__(self, request: EngineRequest) -> bool:
        now = self._clock()
        while self._until and next(iter(self._until.values())) <= now:
            self._until.popitem(last=False)
        return bool(self._until) and _digest(request) in self._until


def _digest(request: EngineRequest) -> bytes:
    return hashlib.blake2b(encode_request(request), digest_size=16).digest()
