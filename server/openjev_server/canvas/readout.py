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
    alike: dict[tuple[int, int, int], list[int]] = {}
    for number, readout in enumerate(compiled.readouts):
        key = id(readout.trie), readout.candidates[0], len(last[readout.block])
        alike.setdefault(key, []).append(number)
    answers: dict[int, NDArray[np.float64]] = {}
    for numbers in alike.values():
        readouts = [compiled.readouts[number] for number in numbers]
        first, end = readouts[0].candidates
        log_probs = np.stack([last[readout.block][:, first:end] for readout in readouts])
        mean = readouts[0].trie.probabilities(log_probs).mean(axis=1)
        answers.update(zip(numbers, mean / mean.sum(axis=-1, keepdims=True), strict=True))
    return tuple(answers[number] for number in range(len(compiled.readouts)))


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
        log_probs = answer.log_probs
        if log_probs.ndim != 3 or log_probs.shape[1:] != (len(block.canvases), len(block.candidates)):
            raise ValueError(f"log_probs of shape {log_probs.shape} for {len(block.candidates)} candidates")
        last.append(log_probs[-1])
    read = [values.ravel() for values in (*last, *(answer.logsumexp[-1] for answer in result.blocks))]
    if not np.isfinite(np.concatenate(read)).all():
        raise NonFiniteLogits("the model produced NaN or infinite logits at a slot")
    return last
