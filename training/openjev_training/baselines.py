"""What the embedded checkpoint is compared with: a 22 M sentence embedding, and the 2 MB model that a package ships.

Neither is a dependency: the embedding is a directory, and `sparrow-decider` is imported where it is asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from .predict import Record
from .rows import Row, sample_rows

__all__ = ["Ask", "Embedder", "embedding_records", "sparrow", "sparrow_records"]

Ask = Callable[[str, dict[str, dict[str, Any]]], dict[str, dict[str, Any]]]
"""(state, questions as the API has them) -> answers as the API has them."""


class Embedder:
    """Mean-pooled, normalised sentence embeddings of a BERT directory (config.json, tokenizer.json, weights)."""

    def __init__(self, folder: Path) -> None:
        from transformers import BertModel

        self._model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(256)
        self._tokenizer.no_padding()
        self._known: dict[str, NDArray[np.float32]] = {}

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """[n, 384]; texts beyond 256 tokens lose their end, as the model's card has it."""
        new = sorted({t for t in texts if t not in self._known}, key=len)
        for i in range(0, len(new), 32):
            part = new[i : i + 32]
            encoded = [e.ids for e in self._tokenizer.encode_batch(part)]
            width = max(map(len, encoded))
            ids, mask = torch.zeros(len(part), width, dtype=torch.long), torch.zeros(len(part), width)
            for row, one in enumerate(encoded):
                ids[row, : len(one)], mask[row, : len(one)] = torch.tensor(one), 1
            with torch.no_grad():
                hidden = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            found = torch.nn.functional.normalize(mean, dim=-1).numpy()
            self._known.update(zip(part, found, strict=True))
        return np.stack([self._known[t] for t in texts])


def _chosen(measures: Mapping[str, Sequence[Row]], rows: int, seed: int) -> Iterator[tuple[str, str, list[Row]]]:
    """(measure, task, at most `rows` of its rows): the same for the same seed."""
    for measure, members in measures.items():
        tasks: dict[str, list[Row]] = defaultdict(list)
        for row in members:
            tasks[row.task].append(row)
        for task, every in tasks.items():
            yield measure, task, sample_rows(every, rows, seed)


def embedding_records(
    embed: Embedder, measures: Mapping[str, Sequence[Row]], *, rows: int, seed: int = 5
) -> list[Record]:
    """Softmax of cosine / 0.05 between state + instructions and each option; a noul compares with `yes` and `no`."""
    out = []
    for measure, task, chosen in _chosen(measures, rows, seed):
        texts = embed([f"{row.state}\n{row.instructions}" for row in chosen])
        for number, (row, text) in enumerate(zip(chosen, texts, strict=True)):
            names = [n if d is None else f"{n}: {d}" for n, d in zip(row.names, row.descriptions, strict=True)]
            scores = embed(names) @ text / 0.05
            p = np.exp(scores - scores.max())
            made = tuple(float(x) for x in p / p.sum())
            out.append(Record(measure, "plain", task, row.kind, number, row.gold, (made,)))
    return out


def sparrow() -> Ask:
    """The model that `sparrow-decider` ships (0.2.0: `sparrow-nano-general-v1.1`, 2.2 MB).

    Raises ModuleNotFoundError where the package is not installed.
    """
    from sparrow_decider import Decider

    ask: Ask = Decider.load().ask
    return ask


def sparrow_records(ask: Ask, measures: Mapping[str, Sequence[Row]], *, rows: int, seed: int = 5) -> list[Record]:
    """Asks each row in the API's own form, one question a state."""
    out = []
    for measure, task, chosen in _chosen(measures, rows, seed):
        for number, row in enumerate(chosen):
            answer = ask(row.state, {"q": _question(row)})["q"]
            made: tuple[float, ...]
            if row.kind == "noul":
                made = (float(answer["noul"]), 1 - float(answer["noul"]))
            else:
                made = tuple(float(p) for p in answer["probabilities"].values())
            out.append(Record(measure, "plain", task, row.kind, number, row.gold, (made,)))
    return out


def _question(row: Row) -> dict[str, Any]:
    question: dict[str, Any] = {"type": row.kind, "instructions": row.instructions}
    if row.kind == "choice":
        question["criteria"] = dict(zip(row.names, row.descriptions, strict=True))
    elif row.kind == "score":
        question["criteria"] = list(row.names)
    return question
