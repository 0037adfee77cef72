"""The kernels run in Triton's interpreter where there is no GPU: the same code, on CPU tensors."""

import os
from collections.abc import Iterator

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _overflow_is_infinity() -> Iterator[None]:
    """exp(large) is infinity on a GPU; numpy, in which the interpreter computes, warns about it."""
    with np.errstate(over="ignore"):
        yield
