"""Small tokenizers to compile with: Gemma's token names, words with an unknown token, and one that leaks."""

from __future__ import annotations

from collections.abc import Iterable

from openjev_server.canvas.tokenizer import TextTokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

__all__ = ["GEMMA_CHAT", "GEMMA_CONTROLS", "byte_level", "gemma_named", "leaky", "words"]

GEMMA_CONTROLS = ("<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>")
GEMMA_CHAT = """\
{{- bos_token -}}
{%- for message in messages -%}
{{- '<|turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' -}}
{{- message['content'] | trim -}}
{{- '<turn|>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|turn>model\n' -}}
{%- endif -%}
"""
"""A small chat template of our own that writes Gemma's turns."""
NANO_CONTROLS = (
    *("<pad>", "<eos>", "<bos>", "<unk>", "<state>", "<question>", "<option>", "<answer>", "<true>", "<false>"),
    *(f"<o{i}>" for i in range(255)),
)
CORPUS = ("the user said that the answer is true or false", "thought model answer question option refund invoice")


def byte_level(controls: Iterable[str], corpus: Iterable[str] = CORPUS, vocab_size: int = 400) -> Tokenizer:
    """A byte-level BPE with these special tokens in front: ids in the order given, then bytes, then merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = list(controls)
    trainer = trainers.BpeTrainer(
        vocab_size=len(names) + vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=names,
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def gemma_named() -> Tokenizer:
    """A tokenizer with the turn markup of Gemma's checkpoints; about 400 tokens."""
    return byte_level(GEMMA_CONTROLS)


def nano_named(corpus: Iterable[str] = CORPUS, vocab_size: int = 300) -> Tokenizer:
    """The embedded checkpoint's control tokens over another vocabulary."""
    return byte_level(NANO_CONTROLS, corpus, vocab_size)


def words(*known: str) -> TextTokenizer:
    """Whole words; what it does not know becomes `<unk>`, so that different texts can get equal tokens."""
    names = [*NANO_CONTROLS, *known]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(NANO_CONTROLS))
    return TextTokenizer(tokenizer)


def leaky() -> Tokenizer:
    """Spells its control tokens from text in three ways: as a word of the vocabulary, as an added token that is not
    called special, and as a single character."""
    alphabet = [chr(c) for c in range(32, 127)] + ["\ufffd"]
    names = ["<bos>", "<state>", "<question>", "<answer>", "<eos>", "<|x|>", "~"]
    vocab = {name: i for i, name in enumerate([*names, *(c for c in alphabet if c != "~")])}
    tokenizer = Tokenizer(models.Unigram([(name, -0.1 if name in names else -2.0) for name in vocab], unk_id=None))
    tokenizer.add_special_tokens(["<bos>", "<state>", "<question>", "<answer>", "<eos>", "~"])
    tokenizer.add_tokens([AddedToken("<|x|>", special=False)])
    return tokenizer
