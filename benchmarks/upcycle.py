"""A mixture of experts out of the embedded checkpoint: `python -m benchmarks.upcycle TARGET`.

For checks where random weights say nothing: every dense MLP is copied into 8 experts, each with noise of its own, a
random router sends a row to 2 of them, and the sum of both paths has the size that the dense path had. The model still
answers sensibly, and its routing matters. The target is a checkpoint directory that `openjev serve --model` opens.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import torch
from openjev_server.bundle import EMBEDDED_MODEL, resolve_model
from openjev_server.engine.loading import open_checkpoint, read_tensors
from openjev_server.engine.tensors import layer_name
from safetensors.torch import save_file

__all__ = ["upcycle", "upcycled"]

EXPERTS = 8
CHOSEN = 2
NOISE = 0.2
"""Of a matrix's own standard deviation."""
ROUTER_STD = 1.5
"""A router reads rows of length 1, so this is the spread of its scores: the two chosen take most of the weight."""
COMPANIONS = ("tokenizer.json", "tokenizer_config.json")

Tensors = dict[str, torch.Tensor]


def upcycled(
    raw: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], *, experts: int = EXPERTS, seed: int = 0
) -> tuple[dict[str, Any], Tensors]:
    """Configuration and tensors of the mixture, in float32."""
    generator = torch.Generator().manual_seed(seed)
    text = raw["text_config"]
    new = {
        **raw,
        "text_config": {
            **text,
            "num_experts": experts,
            "top_k_experts": min(CHOSEN, experts),
            "moe_intermediate_size": text["intermediate_size"],
        },
    }
    made = {name: tensor.float().clone() for name, tensor in tensors.items()}

    def noisy(matrix: torch.Tensor) -> torch.Tensor:
        noise = torch.randn(experts, *matrix.shape, generator=generator)
        return matrix + NOISE * matrix.std() * noise

    for index in range(text["num_hidden_layers"]):

        def of(name: str, index: int = index) -> str:
            return layer_name(index, name)

        gate_up = torch.cat([made[of("mlp.gate_proj.weight")], made[of("mlp.up_proj.weight")]])
        made[of("experts.gate_up_proj")] = noisy(gate_up)
        made[of("experts.down_proj")] = noisy(made[of("mlp.down_proj.weight")])
        made[of("router.proj.weight")] = ROUTER_STD * torch.randn(experts, text["hidden_size"], generator=generator)
        made[of("router.scale")] = torch.ones(text["hidden_size"])
        made[of("router.per_expert_scale")] = torch.ones(experts)
        made[of("pre_feedforward_layernorm_2.weight")] = made[of("pre_feedforward_layernorm.weight")].clone()
        half = made[of("post_feedforward_layernorm_1.weight")] / 2
        made[of("post_feedforward_layernorm_1.weight")] = half
        made[of("post_feedforward_layernorm_2.weight")] = half.clone()
    return new, made


def upcycle(target: Path, *, source: Path | None = None, seed: int = 0) -> int:
    """Writes the checkpoint directory and returns the bytes of its weights. Raises FileExistsError."""
    source = source or resolve_model(EMBEDDED_MODEL)
    raw = json.loads((source / "config.json").read_text(encoding="utf-8"))
    with closing(open_checkpoint(source)) as checkpoint:
        config, tensors = upcycled(raw, dict(read_tensors(checkpoint)), seed=seed)
    target.mkdir(parents=True)
    (target / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--source", type=Path, help="default: the embedded checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    print(f"{upcycle(chosen.target, source=chosen.source, seed=chosen.seed):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
