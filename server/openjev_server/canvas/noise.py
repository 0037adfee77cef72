"""What the slots hold before the first step, and what they are redrawn with between steps."""

from __future__ import annotations

import hashlib
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.protocol import Float32, Int32, Redraw

__all__ = ["HashedNoise", "NoiseSource", "SharedNoise"]

Words = NDArray[np.uint64]


class NoiseSource(Protocol):
    """Draws for the canvases of one state. Streams are SHAKE-128, the same on every machine and numpy."""

    def draw(self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int) -> Int32:
        """Canvases with noise at `slots`, shape [replicas, C]; what `canvas` holds there does not matter."""
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
        _update(self._base, state)

    def draw(self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int) -> Int32:
        structure, key = self._keyed(suffix, canvas, slots)
        filled = np.repeat(structure[None], replicas, axis=0)
        for replica in range(replicas if len(slots) else 0):
            filled[replica, slots] = _tokens(_words(key + _number(replica), len(slots)), self._plain)
        return filled

    def redraw(
        self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int, *, steps: int, entropy_bound: float
    ) -> Redraw:
        _, key = self._keyed(suffix, canvas, slots)
        words = _between(key, steps, replicas, len(slots))
        return Redraw(entropy_bound, _uniforms(words[0]), _tokens(words[1], self._plain))

    def _keyed(self, suffix: Int32, canvas: Int32, slots: Int32) -> tuple[Int32, bytes]:
        structure = canvas.astype(np.int32)
        structure[slots] = -1
        seed = self._base.copy()
        _update(seed, suffix)
        _update(seed, structure)
        return structure, seed.digest()


class SharedNoise:
    """Uniform over `ids` by canvas position and replica: every canvas of every request gets the same."""

    def __init__(self, ids: Int32, *, seed: int = 0) -> None:
        self._ids = ids
        self._key = b"shared" + _number(seed)

    def draw(self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int) -> Int32:
        filled = np.repeat(canvas.astype(np.int32)[None], replicas, axis=0)
        for replica in range(replicas if len(slots) else 0):
            filled[replica, slots] = _tokens(_words(self._key + _number(replica), len(canvas))[slots], self._ids)
        return filled

    def redraw(
        self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int, *, steps: int, entropy_bound: float
    ) -> Redraw:
        words = _between(self._key, steps, replicas, len(canvas))[..., slots]
        return Redraw(entropy_bound, _uniforms(words[0]), _tokens(words[1], self._ids))


def _between(key: bytes, steps: int, replicas: int, count: int) -> Words:
    """Shape [2, steps - 1, replicas, count]."""
    return _words(key + b"between", 2 * (steps - 1) * replicas * count).reshape(2, steps - 1, replicas, count)


def _words(key: bytes, count: int) -> Words:
    return np.frombuffer(hashlib.shake_128(key).digest(8 * count), "<u8")


def _tokens(words: Words, ids: Int32) -> Int32:
    return ids[words % len(ids)]


def _uniforms(words: Words) -> Float32:
    return ((words >> 40) / np.float64(2**24)).astype(np.float32)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _update(digest: hashlib.blake2b, tokens: Int32) -> None:
    data = tokens.astype("<i4").tobytes()
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)
