"""Which engine gets a request: the one that likely has its state in the cache, unless that one has too much to do.

Rendezvous hashing (Thaler and Ravishankar, 1998): every engine gets a score from its own number and the request's
key, and the request goes to the highest one that is there. An engine that leaves moves its own requests only, and
gets them back when it returns. Bounded loads after Mirrokni, Thorup and Zadimoghaddam (2018): an engine with more
than a factor times the average of what is outstanding is passed over for the next one in the request's own order.

The key is a hash of the state's tokens, or of the state that this one grew from: a transcript with another turn
begins with the tokens of the one before, whose keys and values lie where that one was evaluated.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Mapping

from openjev_server.engine.protocol import Int32

__all__ = ["LOAD_FACTOR", "Ancestry", "choose", "preference", "prefix_lengths"]

LOAD_FACTOR = 1.25
"""How far above the average an engine's outstanding tokens may be before requests pass it over."""
SHORTEST_PREFIX = 64
"""Tokens; a shorter common beginning is not worth a detour."""
REMEMBERED = 65_536
"""Prefixes whose origin is remembered, the latest used."""


def prefix_lengths(tokens: int) -> list[int]:
    """Lengths at which beginnings of a state are compared: 64, 90, 128, 181, ... up to `tokens`, which is the last.

    A state that holds at least half of this one, as its beginning, shares a length of more than a third with it.
    """
    lengths = []
    exact = float(SHORTEST_PREFIX)
    while int(exact) < tokens:
        lengths.append(int(exact))
        exact *= 2**0.5
    return [*lengths, tokens]


class Ancestry:
    """Remembers which state a state grew from. Depends on nothing but the states it was shown, in their order."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._origins: OrderedDict[bytes, bytes] = OrderedDict()
        self._remembered = remembered

    def origin(self, state: Int32) -> bytes:
        """The key of the oldest known state that this one, or what it grew from, begins with; else its own.

        A beginning counts when it makes up at least half of the state.
        """
        keys = _prefix_keys(state)
        own = keys[-1][1]
        origin = own
        for length, key in reversed(keys):
            if 2 * length < len(state):
                break
            if key in self._origins:
                origin = self._origins[key]
                break
        for _, key in keys:
            self._origins.setdefault(key, origin)
            self._origins.move_to_end(key)
        self._origins[own] = origin
        while len(self._origins) > self._remembered:
            self._origins.popitem(last=False)
        return origin


def preference(key: bytes, engines: list[int]) -> list[int]:
    """The engines in the order in which this key prefers them."""
    return sorted(engines, key=lambda engine: _score(key, engine), reverse=True)


def choose(key: bytes, tokens: int, loads: Mapping[int, int], *, slack: int, factor: float = LOAD_FACTOR) -> int:
    """The engine for a request.

    Args:
        key: of the request's state.
        tokens: of the request.
        loads: tokens outstanding at every engine that is there; at least one.
        slack: an engine with no more than so many tokens is never passed over; one pass' worth.
        factor: of the average load, this request included, that an engine may reach.
    """
    bound = max(slack, factor * (sum(loads.values()) + tokens) / len(loads))
    order = preference(key, list(loads))
    for engine in order:
        if loads[engine] + tokens <= bound or not loads[engine]:
            return engine
    return min(order, key=lambda engine: loads[engine])


def _prefix_keys(state: Int32) -> list[tuple[int, bytes]]:
    """(length, hash of so many first tokens), ascending; the last is the whole state."""
    data = memoryview(state.tobytes())
    digest = hashlib.blake2b(digest_size=8)
    keys = []
    start = 0
    for length in prefix_lengths(len(state)):
        stop = length * state.itemsize
        digest.update(data[start:stop])
        keys.append((length, digest.copy().digest()))
        start = stop
    return keys


def _score(key: bytes, engine: int) -> bytes:
    return hashlib.blake2b(key, digest_size=8, salt=engine.to_bytes(8, "little")).digest()
