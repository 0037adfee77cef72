"""A tokenizer with Gemma's control tokens, and texts of an exact number of its tokens: for requests over HTTP.

It is trained here in a second, on the words below and on what the product's own template writes, so that JSON and
instructions take about as many tokens as in Gemma's vocabulary. What a text means is of no interest.
"""

from __future__ import annotations

import json
import random
from functools import cached_property
from pathlib import Path
from typing import Any

from openjev_server.canvas.compile import Compiler, Layout
from openjev_server.canvas.templates import OPENJEV_LITERAL
from openjev_server.canvas.tokenizer import TextTokenizer
from openjev_server.questions import Noul
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["Text", "build_tokenizer"]

CONTROLS = ("<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>")
SYLLABLES = ("ba", "co", "di", "fu", "ga", "ho", "ki", "lo", "mu", "ne", "pa", "ro")
TEMPLATE_TEXT = (
    "\n\nAnswer the following about the text above. Return one JSON object and nothing else.\n",
    '\n"answer": ',
    "\nAllowed values: true, false",
    "\nAllowed values:\n- ",
    '{"answer": true}',
    '{"answer": false}',
    '", "q1": true, "q2": false}',
    "user\n model\n thought\n",
)
VOCABULARY = 3000


def _words() -> list[str]:
    return [a + b + c for a in SYLLABLES for b in SYLLABLES for c in ("n", "r", "s", "t")]


def build_tokenizer() -> Tokenizer:
    """Byte-level BPE, at most 3,000 tokens; each word of `Text` is one token after a blank."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(CONTROLS),
        show_progress=False,
    )
    words = [" " + word for word in _words()]
    tokenizer.train_from_iterator([*TEMPLATE_TEXT, *words] * 5, trainer)
    return tokenizer


class Text:
    """Makes request bodies of given sizes in tokens, under the template that a Gemma tokenizer gets."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self._known = _words()

    @cached_property
    def compiler(self) -> Compiler:
        return Compiler(TextTokenizer(build_tokenizer()), OPENJEV_LITERAL)

    def words(self, count: int) -> str:
        """`count` words with a blank before each: that many tokens."""
        return "".join(" " + word for word in self._random.choices(self._known, k=count))

    @cached_property
    def state_overhead(self) -> int:
        """Tokens that the template puts around the text of a state."""
        return self._sizes(10, 5)[0] - 10

    @cached_property
    def question_overhead(self) -> int:
        """Tokens that the template puts around the instructions of a yes/no question alone with its state."""
        return self._sizes(10, 5)[1] - 5

    def _sizes(self, state: int, instructions: int) -> tuple[int, int]:
        question = Noul("q", self.words(instructions))
        request = self.compiler.compile(self.words(state), [question], layout=Layout.ISOLATED).request
        return len(request.state), len(request.blocks[0].suffix)

    def state(self, tokens: int) -> str:
        """A state of this many tokens, the template's included. Raises ValueError below what the template takes."""
        return self.words(_positive(tokens - self.state_overhead, "state"))

    def noul(self, tokens: int) -> dict[str, Any]:
        """A yes/no question whose suffix has this many tokens. Raises ValueError below what the template takes."""
        return {"type": "noul", "instructions": self.words(_positive(tokens - self.question_overhead, "question"))}

    def choice(self, tokens: int, options: int) -> dict[str, Any]:
        """A choice of one-word options. Its suffix has this many tokens where the options leave room for it."""
        names = self._random.sample(self._known, options)
        left = max(1, tokens - self.question_overhead - 4 * options)
        return {"type": "choice", "instructions": self.words(left), "criteria": dict.fromkeys(names)}

    def body(self, *, state: int | str, questions: int, suffix: int = 40) -> bytes:
        """A request of yes/no questions, as JSON; `state` is a text, or how many tokens a new one has."""
        text = self.state(state) if isinstance(state, int) else state
        asked = {f"q{number}": self.noul(suffix) for number in range(questions)}
        return json.dumps({"state": text, "model": "jev-latest", "questions": asked}).encode()

    def save_tokenizer(self, directory: Path) -> None:
        """Writes tokenizer.json."""
        build_tokenizer().save(str(directory / "tokenizer.json"))


def _positive(tokens: int, what: str) -> int:
    if tokens < 1:
        raise ValueError(f"a {what} of so few tokens has no room for text")
    return tokens
