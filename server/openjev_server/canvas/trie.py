"""The allowed values of one slot group as a trie, and the probability of each from its slots' log-probabilities.

Every value is a complete row of tokens of equal length, so a value that is a prefix of another differs from it in
what follows (the closing quote, the brace, the fill): no special case is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openjev_server.engine.protocol import Int32

__all__ = ["Trie", "differing_columns"]

Float64 = NDArray[np.float64]
Index = NDArray[np.intp]


def differing_columns(rows: Int32) -> Index:
    """Columns of [values, width] in which the rows are not all equal, ascending: the slots."""
    return np.flatnonzero((rows != rows[0]).any(axis=0))


@dataclass(frozen=True, slots=True, eq=False)
class Trie:
    """Rows over slots, [N values, S slots], as flat edges grouped by the node they leave."""

    candidates: Int32
    """Distinct tokens of slot 0, then of slot 1, ...; ascending within a slot; shape [K]."""
    offsets: Int32
    """`candidates[offsets[i]:offsets[i + 1]]` belong to slot i; shape [S + 1]."""
    edges: Index
    """Index into `candidates` of every edge, edges of one node side by side; shape [E]."""
    nodes: Index
    """Where each node's edges begin in `edges`, ascending from 0; shape [G]."""
    owners: Index
    """The node that each edge leaves, shape [E]."""
    paths: Index
    """The edges that lead to each value, shape [N, S]."""
    shares: Float64
    """How many values end in the same leaf as each value (a tokenizer may not tell them apart), shape [N]."""

    @classmethod
    def of(cls, rows: Int32) -> Trie:
        """From token rows restricted to the slots, shape [N, S] with N >= 1; S may be 0."""
        count, depth = rows.shape
        candidates: list[Int32] = []
        edges: list[Index] = []
        owners: list[Index] = []
        paths = np.zeros((count, depth), dtype=np.intp)
        node = np.zeros(count, dtype=np.intp)
        first_candidate = first_edge = first_node = 0
        for slot in range(depth):
            tokens, column = np.unique(rows[:, slot], return_inverse=True)
            # Sorted by node, then token: edges of one node are neighbours.
            branches, branch = np.unique(node * len(tokens) + column, return_inverse=True)
            candidates.append(tokens)
            edges.append(first_candidate + branches % len(tokens))
            owners.append(first_node + branches // len(tokens))
            paths[:, slot] = first_edge + branch
            first_node += int(node.max()) + 1
            first_candidate += len(tokens)
            first_edge += len(branches)
            node = branch
        owner = np.concatenate(owners) if owners else np.zeros(0, dtype=np.intp)
        sizes = np.array([len(tokens) for tokens in candidates], dtype=np.int32)
        trie = cls(
            candidates=np.concatenate(candidates).astype(np.int32) if candidates else np.zeros(0, dtype=np.int32),
            offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int32),
            edges=np.concatenate(edges) if edges else np.zeros(0, dtype=np.intp),
            nodes=np.flatnonzero(np.diff(owner, prepend=-1)),
            owners=owner,
            paths=paths,
            shares=np.bincount(node)[node].astype(np.float64),
        )
        for array in trie._arrays():
            array.setflags(write=False)
        return trie

    def _arrays(self) -> tuple[NDArray[Any], ...]:
        return self.candidates, self.offsets, self.edges, self.nodes, self.owners, self.paths, self.shares

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._arrays())

    @property
    def values(self) -> int:
        return len(self.shares)

    @property
    def slots(self) -> int:
        return len(self.offsets) - 1

    def greedy(self, log_probs: NDArray[np.floating]) -> int:
        """The value at the end of a walk that takes the likeliest child at every node; `log_probs` has shape [K].

        The first of the values that end in one leaf, the first child in a tie.
        """
        alive = np.arange(self.values)
        for slot in range(self.slots):
            edges = self.paths[alive, slot]
            scores = log_probs[self.edges[edges]]
            alive = alive[edges == edges[scores.argmax()]]
        return int(alive[0])

    def probabilities(self, log_probs: NDArray[np.floating]) -> Float64:
        """[..., K] finite log-probabilities of the candidates to [..., N] probabilities that sum to 1.

        A value's probability is the product, over its path, of the softmax restricted to the children of the node
        it has reached; values in the same leaf share its probability equally.
        """
        total = np.zeros((*log_probs.shape[:-1], self.values), dtype=np.float64)
        if self.slots:
            taken = np.take(log_probs, self.edges, axis=-1).astype(np.float64)
            top = np.maximum.reduceat(taken, self.nodes, axis=-1)
            mass = np.add.reduceat(np.exp(taken - np.take(top, self.owners, axis=-1)), self.nodes, axis=-1)
            branch = taken - np.take(top + np.log(mass), self.owners, axis=-1)
            total = np.take(branch, self.paths, axis=-1).sum(axis=-1)
        probabilities: Float64 = np.exp(total) / self.shares
        normalised: Float64 = probabilities / probabilities.sum(axis=-1, keepdims=True)
        return normalised
