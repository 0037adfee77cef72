"""FP8-dynamic checkpoints of compressed-tensors load as they are; what they can have wrong is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from openjev_server.engine.config import ConfigError
from openjev_server.engine.formats import Stored, WeightFormat, stored_format
from openjev_server.engine.int8 import probe
from openjev_server.engine.loading import check_memory, load_backbone, load_engine, open_checkpoint
from openjev_server.engine.matrix import Float8Matrix, Int4Matrix, dequantised, stored_bytes, to_float8, to_int4
from openjev_server.engine.placing import planned_bytes
from openjev_server.engine.protocol import EngineResult
from openjev_server.engine.weights import BackboneWeights, CheckpointError, LayerWeights
from random_models import random_block, random_request, save_random
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]
LAYER = "model.decoder.layers.1."
QUERY = f"{LAYER}self_attn.q_proj.weight"
QUANTISATION: dict[str, Any] = {
    "config_groups": {
        "group_0": {
            "format": "float-quantized",
            "input_activations": {"dynamic": True, "num_bits": 8, "strategy": "token", "type": "float"},
            "weights": {"dynamic": False, "num_bits": 8, "strategy": "channel", "symmetric": True, "type": "float"},
        }
    },
    "format": "float-quantized",
    "quant_method": "compressed-tensors",
}
"""As RedHatAI/diffusiongemma-26B-A4B-it-FP8-dynamic has it, in what decides."""


def float8_of(tensors: Tensors, *, fused: bool) -> Tensors:
    """Attention, dense MLP and experts in FP8 with bf16 scales: experts one by one as published, or fused."""
    made: Tensors = {}
    for name, tensor in tensors.items():
        if (
            "vision" in name
            or tensor.ndim < 2
            or not any(part in name for part in (".self_attn.", ".mlp.", ".experts."))
        ):
            made[name] = tensor
        elif ".experts." not in name or fused:
            made |= quantised(name, tensor)
        else:
            stem, _, kind = name.rpartition(".")
            for expert, matrix in enumerate(tensor):
                parts = matrix.chunk(2) if kind == "gate_up_proj" else [matrix]
                kinds = ("gate_proj", "up_proj") if kind == "gate_up_proj" else ("down_proj",)
                for part, own in zip(parts, kinds, strict=True):
                    made |= quantised(f"{stem}.{expert}.{own}.weight", part)
    return made


def quantised(name: str, tensor: torch.Tensor) -> Tensors:
    scale = to_float8(tensor).scale.to(torch.bfloat16)[..., None]
    return {name: (tensor / scale.float()).to(torch.float8_e4m3fn), f"{name}_scale": scale}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Widths that 4-bit groups divide."""
    path = tmp_path_factory.mktemp("plain")
    save_random(path, hidden_size=64, moe_intermediate_size=64)
    return path


def write(
    plain: Path, directory: Path, damage: Callable[[Tensors], None] = lambda _: None, *, fused: bool = False
) -> Path:
    directory.mkdir(exist_ok=True)
    raw = json.loads((plain / "config.json").read_text()) | {"quantization_config": QUANTISATION}
    (directory / "config.json").write_text(json.dumps(raw))
    tensors = float8_of(load_file(plain / "model.safetensors"), fused=fused)
    damage(tensors)
    save_file({name: t.contiguous() for name, t in tensors.items()}, directory / "model.safetensors")
    return directory


@pytest.fixture(scope="module")
def published(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(plain, tmp_path_factory.mktemp("fp8"))


def weights_of(directory: Path, weights: WeightFormat, dtype: torch.dtype = torch.float32) -> BackboneWeights:
    with closing(open_checkpoint(directory)) as checkpoint:
        return load_backbone(checkpoint, device=torch.device("cpu"), dtype=dtype, weights=weights).weights


def test_values_and_scales_are_kept_as_they_are(published: Path) -> None:
    layer = weights_of(published, WeightFormat.FLOAT8).layers[0]
    stored = load_file(published / "model.safetensors")
    assert isinstance(layer.key_value, Float8Matrix)
    assert isinstance(layer.expert_gate_up, Float8Matrix)
    prefix = "model.decoder.layers.0."
    keys, values = (stored[f"{prefix}self_attn.{part}_proj.weight"] for part in "kv")
    assert torch.equal(layer.key_value.values.view(torch.uint8), torch.cat([keys, values]).view(torch.uint8))
    up = stored[f"{prefix}experts.3.up_proj.weight"]
    half = len(up)
    assert torch.equal(layer.expert_gate_up.values[3, half:].view(torch.uint8), up.view(torch.uint8))
    scale = stored[f"{prefix}experts.3.up_proj.weight_scale"]
    assert torch.equal(layer.expert_gate_up.scale[3, half:], scale[:, 0].float())
    assert isinstance(layer.router, torch.Tensor)


def test_experts_one_by_one_and_fused_are_the_same(plain: Path, published: Path, tmp_path: Path) -> None:
    fused = write(plain, tmp_path / "fused", fused=True)
    for one, other in zip(
        weights_of(published, WeightFormat.PLAIN).layers, weights_of(fused, WeightFormat.PLAIN).layers, strict=True
    ):
        for name in ("query", "expert_gate_up", "expert_down", "gate_up"):
            assert torch.equal(getattr(one, name), getattr(other, name)), name


@pytest.mark.parametrize("weights", ["float8", "int4"])
@pytest.mark.parametrize("source", ["plain", "published"])
def test_quantising_while_loading_is_quantising_what_was_loaded(
    plain: Path, published: Path, source: str, weights: str
) -> None:
    directory = plain if source == "plain" else published
    whole, kept = weights_of(directory, WeightFormat.PLAIN), weights_of(directory, WeightFormat(weights))
    for one, other in zip(whole.layers, kept.layers, strict=True):
        for name in ("query", "key_value", "output", "gate_up", "down", "expert_gate_up", "expert_down"):
            matrix, quantised_ = getattr(one, name), getattr(other, name)
            again = to_float8(matrix) if weights == "float8" else to_int4(matrix)
            assert type(quantised_) is type(again)
            if (source, weights) == ("published", "float8"):
                again = matrix  # nothing was rounded twice
            assert torch.equal(dequantised(quantised_, torch.float32), dequantised(again, torch.float32)), name


def test_bfloat16_keeps_4_bit_groups_in_bfloat16(plain: Path) -> None:
    matrix = weights_of(plain, WeightFormat.INT4, torch.bfloat16).layers[0].query
    assert isinstance(matrix, Int4Matrix)
    assert matrix.scale.dtype == torch.bfloat16


def test_answers_are_those_of_the_plain_weights(plain: Path, published: Path) -> None:
    rng = np.random.default_rng(3)
    request = random_request(rng, state=20, blocks=[random_block(rng, suffix=5, width=6, slots=2)])
    engines = {
        name: load_engine(directory, device="cpu", dtype="float32", weights=weights)
        for name, directory, weights in (
            ("dequantised", published, "auto"),
            ("fp8", published, "float8"),
            ("on loading", plain, "float8"),
            ("unquantised", plain, "auto"),
        )
    }
    answers = {}
    for name, engine in engines.items():
        (result,) = engine.run([request])
        assert isinstance(result, EngineResult)
        answers[name] = result.blocks[0].log_probs
    np.testing.assert_allclose(answers["fp8"], answers["dequantised"], atol=1e-5)
    assert 1e-4 < np.abs(answers["fp8"] - answers["unquantised"]).max() < 0.5
    assert 1e-4 < np.abs(answers["on loading"] - answers["unquantised"]).max() < 0.5
    assert [engine.info.dtype for engine in engines.values()] == ["float32", "float8", "float8", "float32"]
    hashes = [engine.info.weights_hash for engine in engines.values()]
    assert hashes[0] == hashes[1]  # the same numbers
    assert len(set(hashes)) == 3  # quantised while loading: other weights, and a calibration of their own


@pytest.mark.parametrize("weights", [WeightFormat.PLAIN, WeightFormat.FLOAT8])
def test_an_adapter_is_merged_into_fp8_weights(published: Path, tmp_path: Path, weights: WeightFormat) -> None:
    before = weights_of(published, WeightFormat.PLAIN).layers[1]
    assert isinstance(before.query, torch.Tensor)
    low = torch.randn(2, before.query.shape[1]), torch.randn(len(before.query), 2) * 0.1
    module = f"base_model.model.{QUERY.removesuffix('.weight')}"
    tensors = {f"{module}.lora_A.weight": low[0], f"{module}.lora_B.weight": low[1]}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 2}))
    with closing(open_checkpoint(published, adapter=tmp_path)) as checkpoint:
        cpu = torch.device("cpu")
        after = load_backbone(checkpoint, device=cpu, dtype=torch.float32, weights=weights).weights.layers[1]
    merged = before.query + low[1] @ low[0]
    expected: Any = merged if weights is WeightFormat.PLAIN else to_float8(merged)
    torch.testing.assert_close(dequantised(after.query, torch.float32), dequantised(expected, torch.float32))
    assert torch.equal(dequantised(after.output, torch.float32), before.output)  # what it does not touch stays exact


@pytest.mark.parametrize("weights", list(WeightFormat))
def test_the_memory_that_weights_will_take_is_known_before(plain: Path, weights: WeightFormat) -> None:
    if weights is WeightFormat.INT8 and probe() is None:
        pytest.skip("this torch has no 8-bit products")
    with closing(open_checkpoint(plain)) as checkpoint:
        planned = planned_bytes(checkpoint.config, checkpoint.plan, weights, torch.bfloat16)
        placed = load_backbone(checkpoint, device=torch.device("cpu"), dtype=torch.bfloat16, weights=weights).weights
    held = sum(stored_bytes(t) for t in (placed.embedding, placed.norm))
    conditioning = placed.self_conditioning
    held += sum(stored_bytes(t) for t in (conditioning.norm, conditioning.gate_up, conditioning.down))
    for layer in placed.layers:
        held += sum(stored_bytes(t) for t in layer.norms.values()) + 2 * 4
        names = (field.name for field in fields(LayerWeights))
        held += sum(stored_bytes(getattr(layer, name)) for name in names if "scalar" not in name and name != "norms")
    assert planned == held


def test_a_device_that_is_too_small_is_said() -> None:
    check_memory(10 << 30, 11 << 30, "cuda:0")
    with pytest.raises(CheckpointError, match=r"take 47\.1 GiB and cuda:0 has 23\.5 GiB free: OPENJEV_WEIGHTS=float8"):
        check_memory(int(47.1 * 2**30), int(23.5 * 2**30), "cuda:0")


def test_widths_that_4_bit_groups_do_not_divide_are_named(tmp_path: Path) -> None:
    save_random(tmp_path)
    with pytest.raises(ConfigError, match="int4 weights come in groups of 64 inputs, and this model has 24"):
        load_engine(tmp_path, device="cpu", weights="int4")


def zero(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: torch.zeros_like(tensors[name].float()).to(tensors[name].dtype)})


def not_a_number(tensors: Tensors) -> None:
    tensors[QUERY].view(torch.uint8)[2, 3] = 0xFF


def negative_scale(tensors: Tensors) -> None:
    tensors[f"{QUERY}_scale"][1] *= -1


def lost(name: str) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update() if tensors.pop(name) is None else None


def per_tensor(tensors: Tensors) -> None:
    tensors[f"{QUERY}_scale"] = torch.ones(1, dtype=torch.bfloat16)


def with_input_scale(tensors: Tensors) -> None:
    tensors[f"{LAYER}self_attn.q_proj.input_scale"] = torch.ones(1)


FAULTS = [
    # What stock loaders make of such a checkpoint without a word.
    (zero(QUERY), f"{QUERY} is all zero"),
    (zero(f"{LAYER}experts.2.up_proj.weight"), f"{LAYER}experts.2.up_proj.weight is all zero"),
    (zero(f"{QUERY}_scale"), f"{QUERY}_scale is all zero or not finite"),
    (negative_scale, f"{QUERY}_scale has values below 0"),
    (not_a_number, f"{QUERY} has values that are not finite"),
    (lost(f"{QUERY}_scale"), f"{QUERY}_scale is missing: {QUERY} is FP8"),
    (lost(f"{LAYER}experts.2.up_proj.weight"), f"{LAYER}experts.2.up_proj.weight is missing"),
    (lost(f"{LAYER}experts.0.gate_proj.weight"), f"{LAYER}experts.0.gate_proj.weight is missing"),
    (per_tensor, f"{QUERY}_scale is BF16 of shape (1,), not one scale for each of (128,)"),
    (with_input_scale, "q_proj.input_scale is not part of the model"),
]


@pytest.mark.parametrize(("damage", "says"), FAULTS)
@pytest.mark.parametrize("weights", ["auto", "float8"])
def test_a_damaged_checkpoint_is_refused_by_name(
    plain: Path, tmp_path: Path, damage: Callable[[Tensors], None], says: str, weights: str
) -> None:
    directory = write(plain, tmp_path / "damaged", damage)
    with pytest.raises(CheckpointError, match=re.escape(says)):
        load_engine(directory, device="cpu", weights=weights)


def test_fp8_without_its_configuration_is_refused(published: Path, tmp_path: Path) -> None:
    raw = json.loads((published / "config.json").read_text())
    del raw["quantization_config"]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "model.safetensors").symlink_to(published / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"is FP8, but config\.json has no quantization_config"):
        load_engine(tmp_path, device="cpu")


def grouped(**weights: object) -> dict[str, Any]:
    group = QUANTISATION["config_groups"]["group_0"]
    return QUANTISATION | {"config_groups": {"group_0": group | {"weights": group["weights"] | weights}}}


def grouped_as(**group: object) -> dict[str, Any]:
    return QUANTISATION | {"config_groups": {"group_0": QUANTISATION["config_groups"]["group_0"] | group}}


@pytest.mark.parametrize(
    ("quantisation", "says"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "NVFP4 checkpoints"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"g": {}}}, "NVFP4"),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"g": {}}},
            "pack-quantized",
        ),
        ({"quant_method": "awq", "bits": 4}, "AWQ checkpoints"),
        ({"quant_method": "gptq", "bits": 4}, "GPTQ checkpoints"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes checkpoints"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "block-scaled FP8 checkpoints"),
        ({"quant_method": "gguf"}, "GGUF checkpoints"),
        ({"quant_method": "new"}, "'new' checkpoints"),
        ("awq", 'quantization_config is "awq", not an object'),
        ([], r"quantization_config is \[\], not an object"),
        (QUANTISATION | {"config_groups": ["g"]}, r'config_groups is \["g"\], not an object'),
        (QUANTISATION | {"config_groups": {"g": 1}}, "config_groups.g is 1, not an object"),
        (grouped_as(weights="float8"), 'config_groups.group_0.weights is "float8", not an object'),
        (grouped_as(weights=None), "None scales"),
        (grouped_as(input_activations=[1]), r"config_groups.group_0.input_activations is \[1\], not an object"),
        (grouped_as(format=7), "format '7'"),
        (grouped(strategy="tensor"), "'tensor' scales"),
        (grouped(strategy="block"), "'block' scales"),
        (grouped(dynamic=True), "static and symmetric"),
        (QUANTISATION | {"config_groups": {}}, "'float-quantized' are not supported"),
    ],
)
def test_other_quantisations_are_refused_with_advice(quantisation: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        stored_format({"quantization_config": quantisation})
    assert "OPENJEV_WEIGHTS=float8" in str(raised.value)
    assert stored_format({"quantization_config": QUANTISATION}) is Stored.FLOAT8
    assert stored_format({}) is Stored.PLAIN
