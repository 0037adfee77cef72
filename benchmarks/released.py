"""The 26B-A4B architecture with random weights: for speed, where the released checkpoint cannot be had.

A random router spreads tokens nearly evenly over the experts, but rows of one pass share directions, so some experts
are chosen more often than others: `experts_touched` counts them.
"""

from __future__ import annotations

import inspect
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from openjev_server.engine import loading
from openjev_server.engine.config import BackboneConfig
from openjev_server.engine.protocol import Engine
from openjev_server.engine.released import DIFFUSIONGEMMA_26B_A4B_TEXT
from openjev_server.engine.sources import InMemory
from openjev_server.engine.tensors import tensor_shapes
from safetensors.torch import save_file

__all__ = [
    "RELEASED",
    "STD",
    "TINY",
    "configuration",
    "experts_touched",
    "open_engine",
    "random_tensors",
    "stock_model",
    "tensors_of",
    "write_stub",
]

Named = Iterable[tuple[str, torch.Tensor]]

RELEASED = DIFFUSIONGEMMA_26B_A4B_TEXT
"""25.25 B parameters, 47.1 GiB in bf16 once tied."""

TINY: Mapping[str, Any] = {
    **RELEASED,
    "vocab_size": 4096,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "sliding_window": 128,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 64,
    "layer_types": ["sliding_attention", "full_attention"],
}
"""The same architecture in a size for tests on a CPU."""

_VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "model_type": "gemma4_vision",
}
"""transformers' class insists on a vision tower; text never reaches it, so it is a small one."""
STD = 0.02


def configuration(*, tiny: bool = False, layers: int | None = None, experts: int | None = None) -> dict[str, Any]:
    """A `config.json` as a dict; `layers` and `experts` cut the architecture down."""
    text = dict(TINY if tiny else RELEASED)
    if layers is not None:
        text["num_hidden_layers"] = layers
        text.pop("layer_types", None)
    if experts is not None:
        text["num_experts"] = experts
        text["top_k_experts"] = min(text["top_k_experts"], experts)
    return {
        "architectures": ["DiffusionGemmaForBlockDiffusion"],
        "model_type": "diffusion_gemma",
        "text_config": text,
        "vision_config": dict(_VISION),
        "canvas_length": 256,
        # Inside the vocabulary of every size; no benchmark uses an image.
        "image_token_id": text["vocab_size"] - 1,
    }


def random_tensors(
    raw: Mapping[str, Any], *, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor of the backbone by name, made once on the device: matrices N(0, 0.02), norms and scalars 1."""
    generator = torch.Generator(device).manual_seed(seed)
    for name, shape in tensor_shapes(BackboneConfig.from_dict(raw)).items():
        tensor = torch.empty(shape, device=device, dtype=dtype)
        yield name, tensor.fill_(1.0) if tensor.ndim == 1 else tensor.normal_(0.0, STD, generator=generator)


def open_engine(raw: Mapping[str, Any], named: Named, **options: Any) -> Engine:
    """The product's own loader and engine over tensors that lie in no file.

    `options` go to `load_engine`; None values and, with a ValueError, unknown ones are left out.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    if unknown := chosen.keys() - inspect.signature(loading.load_engine).parameters.keys():
        raise ValueError(f"this engine has no option {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="openjev-random-") as directory:
        write_stub(Path(directory), raw)
        with mock.patch.object(loading, "open_source", return_value=InMemory(named)):
            return loading.load_engine(Path(directory), **chosen)


def write_stub(directory: Path, raw: Mapping[str, Any]) -> None:
    """config.json, and a weight file without weights."""
    (directory / "config.json").write_text(json.dumps(raw), encoding="utf-8")
    save_file({"nothing": torch.zeros(1)}, directory / "model.safetensors", metadata={"format": "pt"})


def stock_model(raw: Mapping[str, Any], named: Named, *, device: torch.device, dtype: torch.dtype) -> Any:
    """transformers' DiffusionGemmaForBlockDiffusion over these tensors, each held once.

    Built on `meta`: `to_empty()` would untie encoder and decoder and hold 100 GB.
    """
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion
    from transformers.models.diffusion_gemma.modeling_diffusion_gemma import (
        DiffusionGemmaTextRotaryEmbedding,
        DiffusionGemmaTextScaledWordEmbedding,
    )

    with torch.device("meta"):
        model = DiffusionGemmaForBlockDiffusion(DiffusionGemmaConfig(**raw)).eval()
    state = {name: tensor.to(device=device, dtype=dtype) for name, tensor in named}
    for name, tensor in model.state_dict().items():
        if name.startswith(("model.encoder.vision_tower.", "model.encoder.embed_vision.")):
            state[name] = torch.zeros(tensor.shape, device=device, dtype=dtype)
    model.load_state_dict(state, strict=False, assign=True)
    model.tie_weights()
    # Buffers that no checkpoint holds.
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, DiffusionGemmaTextRotaryEmbedding):
                setattr(module, name, DiffusionGemmaTextRotaryEmbedding(child.config).to(device))
            elif isinstance(child, DiffusionGemmaTextScaledWordEmbedding):
                child.embed_scale = torch.tensor(child.scalar_embed_scale, device=device)
    left = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    left += [name for name, buffer in model.named_buffers() if buffer.is_meta and "vision" not in name]
    if left:
        raise RuntimeError(f"not materialised: {', '.join(left)}")
    return model.requires_grad_(False)


def tensors_of(model: Any, raw: Mapping[str, Any]) -> list[tuple[str, torch.Tensor]]:
    """The stock model's own tensors under the names of a checkpoint: an engine opened on them shares their memory."""
    wanted = tensor_shapes(BackboneConfig.from_dict(raw))
    return [(name, tensor) for name, tensor in model.state_dict().items() if name in wanted]


@torch.no_grad()
def experts_touched(model: Any, *, rows: int = 4096, seed: int = 0) -> dict[int, list[int]]:
    """{rows of a pass: distinct experts that any of them chose, layer by layer}, over random tokens in stock's encoder.

    The first n rows stand for a pass of n rows.
    """
    chosen: dict[int, torch.Tensor] = {}
    layers = model.model.encoder.language_model.layers
    hooks = [
        layer.router.register_forward_hook(lambda _m, _a, out, at=at: chosen.__setitem__(at, out[2].reshape(rows, -1)))
        for at, layer in enumerate(layers)
    ]
    device = model.lm_head.weight.device
    generator = torch.Generator(device).manual_seed(seed)
    tokens = torch.randint(3, model.config.text_config.vocab_size - 1, (1, rows), device=device, generator=generator)
    try:
        model.model.encoder(input_ids=tokens, attention_mask=torch.ones_like(tokens))
    finally:
        for hook in hooks:
            hook.remove()
    sizes = [size for size in (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) if size <= rows]
    return {
        size: [int(chosen[at][:size].flatten().bincount().count_nonzero()) for at in range(len(layers))]
        for size in sizes
    }
