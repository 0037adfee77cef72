"""The kernels run in Triton's interpreter where there is no GPU (`server/tests/conftest.py`): the same code, on CPU
tensors."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

pytest.importorskip("triton")


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _overflow_is_infinity() -> Iterator[None]:
    """exp(large) is infinity on a GPU; numpy, in which the interpreter computes, warns about it."""
    with np.errstate(over="ignore"):
        yield
