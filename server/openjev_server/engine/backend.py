"""What the denoising loop asks of a model: hidden states of slot rows, and what their logits say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from openjev_server.engine.packing import BlockSpan, PackedPass

__all__ = ["Backend", "Conditioning", "Head"]


@dataclass(frozen=True, slots=True)
class Conditioning:
    """What the canvas rows of a later step are conditioned on."""

    soft: torch.Tensor
    """Expected embeddings of the slot rows, [m, hidden], in the order of `tiles.slot_rows`."""
    on_own_token: NDArray[np.bool_]
    """Per canvas row: whether a frozen position sees its own token's embedding, else nothing."""


class Head(Protocol):
    """Logits of slot rows over the whole vocabulary, soft-capped, read without handing them out."""

    @property
    def log_sums(self) -> torch.Tensor:
        """Log of the sum of exp(logit), float32 [m]; not finite where a logit is not."""
        ...

    def logits(self, rows: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of (row, token) pairs, float32 [k]."""
        ...

    def probabilities(self, temperature: torch.Tensor | None) -> torch.Tensor:
        """[m, vocab], of the logits divided by `temperature` [m] if given. The head may be spent after this."""
        ...


class Backend(Protocol):
    """A model on a device, with its key pool."""

    @property
    def device(self) -> torch.device: ...

    @property
    def head_rows(self) -> int:
        """Slot rows whose logits over the vocabulary may be held at once."""
        ...

    def allocate(self, capacity: int) -> None:
        """Makes the key pool: `capacity` rows in every layer."""
        ...

    def warm_up(self, token_budget: int) -> None:
        """Compiles what passes of up to `token_budget` rows will need."""
        ...

    def run(self, packed: PackedPass, blocks: list[BlockSpan], conditioning: Conditioning | None) -> torch.Tensor:
        """Final hidden states [m, hidden] of the slot rows of `blocks`.

        Without conditioning this is the first step, over all rows of the pass, and fills the key pool; with it only
        the canvas rows of `blocks` run.
        """
        ...

    def head(self, hidden: torch.Tensor) -> Head: ...

    def soft_embed(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Distributions over the vocabulary [n, vocab] -> expected scaled embeddings [n, hidden]."""
        ...

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Token ids [n] -> scaled embeddings [n, hidden]."""
        ...
