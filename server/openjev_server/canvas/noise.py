"""Slot noise that depends on what is asked, and on nothing else."""

from __future__ import annotations

import hashlib

import numpy as np

from openjev_server.engine.protocol import Int32

__all__ = ["NoiseSource"]


class NoiseSource:
    """Draws token ids for the slots of one state's canvases, uniformly from `plain`.

    Seeded with a hash of template, state, suffix, frozen canvas and replica number: the same question about the same
    state gets the same noise whatever it is called, sent or batched with. The stream is SHAKE-128 of that hash, the
    same on every machine and with every version of numpy.
    """

    def __init__(self, template: str, state: Int32, plain: Int32) -> None:
        self._plain = plain
        self._base = hashlib.blake2b(template.encode(), digest_size=16)
        _update(self._base, state)

    def draw(self, suffix: Int32, canvas: Int32, slots: Int32, replicas: int) -> Int32:
        """Canvases with noise at `slots`, shape [replicas, C]; what `canvas` holds there does not matter."""
        structure = canvas.astype(np.int32)
        structure[slots] = -1
        filled = np.repeat(structure[None], replicas, axis=0)
        if len(slots) == 0:
            return filled
        seed = self._base.copy()
        _update(seed, suffix)
        _update(seed, structure)
        key = seed.digest()
        for replica in range(replicas):
            stream = hashlib.shake_128(key + replica.to_bytes(8, "little")).digest(8 * len(slots))
            filled[replica, slots] = self._plain[np.frombuffer(stream, "<u8") % len(self._plain)]
        return filled


def _update(digest: hashlib.blake2b, tokens: Int32) -> None:
    data = tokens.astype("<i4").tobytes()
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)
