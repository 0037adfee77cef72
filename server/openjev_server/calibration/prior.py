"""Running prior correction: learns from unlabelled answers how often each answer of a question is right.

Expectation maximisation for a changed prior (Saerens, Latinne, Decaestecker 2002, "Adjusting the Outputs of a
Classifier to New a Priori Probabilities") over the last answers to the same question; what the model expects without
them is taken to be uniform. `PSEUDO_ANSWERS` uniform ones join in, so that few answers change little.

An answer then depends on what the same client asked before, so it is off unless somebody turns it on. Clients never
learn from one another: every API key has its own memory, since base rates say something about the states that were
asked. Requests without a key share one.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from openjev_server.calibration.kinds import kind_of
from openjev_server.calibration.scalings import Float
from openjev_server.questions import Question

__all__ = ["PRIOR_SUFFIX", "PriorCorrection", "shifted_prior"]

PRIOR_SUFFIX = "+prior"
"""Behind the calibration's hash in headers."""
PSEUDO_ANSWERS = 20.0
ITERATIONS = 100
CONVERGED = 1e-6
BYTES_PER_QUESTION = 400
"""What an entry costs beside its probabilities."""


def shifted_prior(answers: Float) -> Float:
    """The prior [n] under which answers [m, n], probabilities under a uniform one, are most likely (with
    `PSEUDO_ANSWERS` uniform ones)."""
    m, n = answers.shape
    prior = np.full(n, 1 / n)
    for _ in range(ITERATIONS):
        joint = answers * prior
        shares = (joint / joint.sum(axis=1, keepdims=True)).sum(axis=0)
        found: Float = (shares + PSEUDO_ANSWERS / n) / (m + PSEUDO_ANSWERS)
        if np.abs(found - prior).max() < CONVERGED:
            return found
        prior = found
    return prior


class PriorCorrection:
    """Remembers answers, question by question, and corrects new ones. Thread safe.

    Deterministic: the same requests in the same order get the same answers.
    """

    def __init__(self, *, window: int, memory_bytes: int) -> None:
        """
        Args:
            window: answers of a question that count, the newest ones.
            memory_bytes: of all probabilities that are kept; the questions that were asked longest ago are forgotten.
        """
        self._window = window
        self._limit = memory_bytes
        self._memory: OrderedDict[bytes, deque[Float]] = OrderedDict()
        self._held = 0
        self._lock = threading.Lock()

    @property
    def held_bytes(self) -> int:
        """What the memory takes now, at most `memory_bytes`."""
        return self._held

    def apply(self, client: str, how: str, question: Question, probabilities: Sequence[float]) -> Sequence[float]:
        """Corrects an answer with what this client's earlier ones to the same question say, and remembers it.

        Args:
            client: whose memory it is.
            how: what else must be the same for answers to be comparable (layout, steps).
            question: its type, text and answers tell questions apart, not its id.
            probabilities: in question order, calibrated if they can be.
        """
        p = np.asarray(probabilities, np.float64)
        if len(p) == 1:
            return probabilities
        with self._lock:
            window = self._remember(_key(client, how, question), p)
        corrected = p * shifted_prior(window)
        result: list[float] = (corrected / corrected.sum()).tolist()
        return result

    def _remember(self, key: bytes, p: Float) -> Float:
        """The question's window with `p` in it, shape [m, n]."""
        answers = self._memory.pop(key, None)
        if answers is None:
            answers = deque(maxlen=self._window)
            self._held += BYTES_PER_QUESTION
        if len(answers) < self._window:
            self._held += p.nbytes
        answers.append(p)
        self._memory[key] = answers
        window = np.stack(answers)
        while self._held > self._limit:
            _, forgotten = self._memory.popitem(last=False)
            self._held -= BYTES_PER_QUESTION + sum(x.nbytes for x in forgotten)
        return window


def _key(client: str, how: str, question: Question) -> bytes:
    asked = {name: value for name, value in asdict(question).items() if name != "id"}
    text = json.dumps([client, how, kind_of(question), asked])
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
