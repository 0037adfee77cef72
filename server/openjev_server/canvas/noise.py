"""What the slots hold before the first step, and what they are redrawn with between steps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.protocol import Float32, Int32, Redraw

__all__ = ["HashedNoise", "NoiseSource", "SharedNoise"]

Words = NDArray[np.uint64]


class NoiseSource(Protocol):
    """Draws for the canvases of one state. Streams are SHAKE-128, the same on every machine and numpy."""

    def draw(self, suffixes: Sequence[Int32], canvas: Int32, slots: Int32, replicas: int) -> Int32:
        """Canvases of questions that are spelled alike, with noise at `slots`, shape [suffixes, replicas, C]; what
        `canvas` holds there does not matter."""
        ...

    def redraw(
        self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int, *, steps: int, entropy_bound: float
    ) -> Redraw:
        """The randomness between the steps of such canvases."""
        ...


class HashedNoise:
    """Uniform over `plain`, seeded with a hash of template, state, suffix, frozen canvas and replica number: the same
    question about the same state gets the same noise whatever it is called, sent or batched with."""

    def __init__(self, template: str, state: Int32, plain: Int32) -> None:
        self._plain = plain
        self._base = hashlib.blake2b(template.encode(), digest_size=16)
        self._base.update(_counted(state))

    def draw(self, suffixes: Sequence[Int32], canvas: Int32, slots: Int32, replicas: int) -> Int32:
        structure = _structure(canvas, slots)
        filled = np.empty((len(suffixes), replicas, len(canvas)), np.int32)
        filled[:] = structure
        if len(slots):
            frozen = _counted(structure)
            keys = [self._key(suffix, frozen) for suffix in suffixes]
            stream = b"".join(
                _stream(key + number, len(slots)) for key in keys for number in map(_number, range(replicas))
            )
            words = np.frombuffer(stream, "<u8").reshape(len(suffixes), replicas, len(slots))
            filled[..., slots] = _tokens(words, self._plain)
        return filled

    def redraw(
        self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int, *, steps: int, entropy_bound: float
    ) -> Redraw:
        key = self._key(suffix, _counted(_structure(canvas, slots)))
        words = _between(key, steps, replicas, len(slots))
        return Redraw(entropy_bound, _uniforms(words[0]), _tokens(words[1], self._plain))

    def _key(self, suffix: Int32, frozen: bytes) -> bytes:
        seed = self._base.copy()
        seed.update(_counted(suffix) + frozen)
        return seed.digest()


class SharedNoise:
    """Uniform over `ids` by canvas position and replica: every canvas of every request gets the same."""

    def __init__(self, ids: Int32, *, seed: int = 0) -> None:
        self._ids = ids
        self._key = b"shared" + _number(seed)

    def draw(self, suffixes: Sequence[Int32], canvas: Int32, slots: Int32, replicas: int) -> Int32:
        filled = np.repeat(canvas.astype(np.int32)[None], replicas, axis=0)
        for replica in range(replicas if len(slots) else 0):
            filled[replica, slots] = _tokens(_words(self._key + _number(replica), len(canvas))[slots], self._ids)
        return np.broadcast_to(filled, (len(suffixes), *filled.shape))

    def redraw(
        self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int, *, steps: int, entropy_bound: float
    ) -> Redraw:
        words = _between(self._key, steps, replicas, len(canvas))[..., slots]
        return Redraw(entropy_bound, _uniforms(words[0]), _tokens(words[1], self._ids))


def _structure(canvas: Int32, slots: Int32) -> Int32:
    structure = canvas.astype(np.int32)
    structure[slots] = -1
    return structure


def _between(key: bytes, steps: int, replicas: int, count: int) -> Words:
    """Shape [2, steps - 1, replicas, count]."""
    return _words(key + b"between", 2 * (steps - 1) * replicas * count).reshape(2, steps - 1, replicas, count)


def _words(key: bytes, count: int) -> Words:
    return np.frombuffer(_stream(key, count), "<u8")


def _stream(key: bytes, count: int) -> bytes:
    return hashlib.shake_128(key).digest(8 * count)


def _tokens(words: Words, ids: Int32) -> Int32:
    return ids[words % len(ids)]


def _uniforms(words: Words) -> Float32:
    return ((words >> 40) / np.float64(2**24)).astype(np.float32)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _counted(tokens: Int32) -> bytes:
    """Tokens as they are hashed: their bytes, and before them how many bytes that is."""
    data = tokens.astype("<i4", copy=False).tobytes()
    return _number(len(data)) + data
