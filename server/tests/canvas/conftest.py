from __future__ import annotations

from pathlib import Path

import openjev_server
import pytest
from canvas_tokenizers import gemma_named
from hypothesis import HealthCheck, settings
from openjev_server.canvas.tokenizer import TextTokenizer

settings.register_profile("canvas", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("canvas")


@pytest.fixture(scope="session")
def nano() -> TextTokenizer:
    return TextTokenizer.from_directory(Path(openjev_server.__file__).parent / "models" / "nano")


@pytest.fixture(scope="session")
def gemma() -> TextTokenizer:
    return TextTokenizer(gemma_named())
