"""An engine's log-probabilities to a probability per answer."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from openjev_server.canvas.compile import CompiledRequest
from openjev_server.engine.protocol import EngineResult, NonFiniteLogits

__all__ = ["read_greedily", "read_out"]


def read_out(compiled: CompiledRequest, result: EngineResult) -> tuple[NDArray[np.float64], ...]:
    """Per question, in order, a probability for each of its answers (a noul: true, then false); each sums to 1.

    The last step is read, and the noise replicas' probabilities are averaged. A question with one possible answer
    gives it probability 1 whatever the engine says. Raises NonFiniteLogits for NaN or infinite values at the last
    step, and ValueError when the result does not have the request's shape.
    """
    last = _last_step(compiled, result)
    answers = []
    for readout in compiled.readouts:
        first, end = readout.candidates
        mean = readout.trie.probabilities(last[readout.block][:, first:end]).mean(axis=0)
        answers.append(mean / mean.sum())
    return tuple(answers)


def read_greedily(compiled: CompiledRequest, result: EngineResult) -> tuple[int, ...]:
    """Per question the number of the answer that the seed reads: token by token the likeliest, at the last step.

    This need not be the answer of the largest probability: an option that begins like others shares their first token.
    Of noise replicas the first is read. Raises as `read_out`.
    """
    last = _last_step(compiled, result)
    return tuple(r.trie.greedy(last[r.block][0, slice(*r.candidates)]) for r in compiled.readouts)


def _last_step(compiled: CompiledRequest, result: EngineResult) -> list[NDArray[np.float32]]:
    """Per block, finite candidate log-probabilities [replicas, K]."""
    if len(result.blocks) != len(compiled.request.blocks):
        raise ValueError(f"{len(result.blocks)} results for {len(compiled.request.blocks)} canvas blocks")
    last = []
    for block, answer in zip(compiled.request.blocks, result.blocks, strict=True):
        replicas = len(block.canvases)
        if answer.log_probs.ndim != 3 or answer.log_probs.shape[1:] != (replicas, len(block.candidates)):
            raise ValueError(f"log_probs of shape {answer.log_probs.shape} for {len(block.candidates)} candidates")
        log_probs = answer.log_probs[-1]
        if not (np.isfinite(log_probs).all() and np.isfinite(answer.logsumexp[-1]).all()):
            raise NonFiniteLogits("the model produced NaN or infinite logits at a slot")
        last.append(log_probs)
    return last
