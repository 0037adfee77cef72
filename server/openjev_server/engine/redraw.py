"""Which tokens the slots of a canvas hold in the next step, where a template redraws them."""

from __future__ import annotations

import numpy as np

from openjev_server.engine.protocol import CanvasBlock, Float32, Int32

__all__ = ["redrawn"]


def redrawn(block: CanvasBlock, log_probs: Float32, *, step: int, temperature: float) -> Int32:
    """Slot tokens after step `step` (from 1), shape [replicas, S]; `log_probs` has shape [replicas, K].

    Over its candidates, at this temperature, every slot has a distribution; the slots of lowest entropy are accepted
    while the entropies before them sum to at most the bound, and take a sample; the others take the request's noise.
    (Ben-Hamu et al., 2025, "Accelerated sampling from masked diffusion models via entropy bounded unmasking", as in
    transformers' EntropyBoundSampler: frozen positions have entropy 0 and change nothing.)
    """
    redraw = block.redraw
    assert redraw is not None
    starts = block.offsets[:-1]
    sizes = np.diff(block.offsets)
    scaled = log_probs.astype(np.float64) / temperature
    scaled -= np.repeat(np.maximum.reduceat(scaled, starts, axis=-1), sizes, axis=-1)
    weights = np.exp(scaled)
    mass = np.repeat(np.add.reduceat(weights, starts, axis=-1), sizes, axis=-1)
    shares = weights / mass
    entropy = np.add.reduceat(shares * (np.log(mass) - scaled), starts, axis=-1)
    order = np.argsort(entropy, axis=-1, kind="stable")
    ascending = np.take_along_axis(entropy, order, axis=-1)
    accepted = np.zeros(entropy.shape, bool)
    np.put_along_axis(accepted, order, np.cumsum(ascending, axis=-1) - ascending <= redraw.entropy_bound, axis=-1)
    sampled = np.empty(entropy.shape, np.int32)
    for slot, (first, last) in enumerate(zip(starts, block.offsets[1:], strict=True)):
        reached = np.cumsum(shares[:, first:last], axis=-1) > redraw.uniforms[step - 1, :, slot, None]
        # Rounding may leave the sum below a uniform close to 1: the last candidate then.
        chosen = np.where(reached.any(axis=-1), reached.argmax(axis=-1), last - first - 1)
        sampled[:, slot] = block.candidates[first + chosen]
    return np.where(accepted, sampled, redraw.tokens[step - 1])
