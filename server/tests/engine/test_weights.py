"""The loader names every tensor that is not as it must be; the embedded format reads back what was written."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from openjev_server.engine import placing, sources
from openjev_server.engine.config import BackboneConfig, ConfigError
from openjev_server.engine.loading import load_backbone, load_engine, open_checkpoint
from openjev_server.engine.quantised import FILE_NAME, EmbeddedSource, write_quantised
from openjev_server.engine.sources import read_header
from openjev_server.engine.tensors import tensor_shapes
from openjev_server.engine.weights import CheckpointError
from random_models import TEXT, save_random
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import DiffusionGemmaConfig

Tensors = dict[str, torch.Tensor]
LAYER = "model.decoder.layers.1."
QUERY = f"{LAYER}self_attn.q_proj.weight"
EXPERTS = f"{LAYER}experts.gate_up_proj"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random")
    save_random(path)
    return path


@pytest.fixture(scope="module")
def tensors(saved: Path) -> Tensors:
    return load_file(saved / "model.safetensors")


def write_sharded(saved: Path, directory: Path, tensors: Tensors) -> None:
    """Four files and an index, as large checkpoints come."""
    (directory / "config.json").write_text((saved / "config.json").read_text())
    placed = {}
    for number in range(4):
        file = f"model-0000{number + 1}-of-00004.safetensors"
        part = {name: tensors[name].contiguous() for name in sorted(tensors)[number::4]}
        save_file(part, directory / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": placed}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def file_of(directory: Path, name: str) -> Path:
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    return directory / index["weight_map"][name]


def missing(tensors: Tensors) -> None:
    del tensors[QUERY]


def renamed(tensors: Tensors) -> None:
    tensors["model.decoder.layers.1.attn.q.weight"] = tensors.pop(QUERY)


def transposed(tensors: Tensors) -> None:
    tensors[QUERY] = tensors[QUERY].T.contiguous()


def nan(tensors: Tensors) -> None:
    tensors[QUERY][3, 3] = torch.nan


def infinite(tensors: Tensors) -> None:
    tensors[f"{LAYER}input_layernorm.weight"][3] = torch.inf


def zeroed(name: str) -> Callable[[Tensors], None]:
    def damage(tensors: Tensors) -> None:
        tensors[name].zero_()

    return damage


def one_expert_zeroed(tensors: Tensors) -> None:
    tensors[f"{LAYER}experts.down_proj"][2].zero_()


def an_up_half_zeroed(tensors: Tensors) -> None:
    tensors[EXPERTS][3, tensors[EXPERTS].shape[1] // 2 :].zero_()


def integers(tensors: Tensors) -> None:
    tensors[QUERY] = torch.ones_like(tensors[QUERY], dtype=torch.int8)


def untied(tensors: Tensors) -> None:
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"] + 1


def an_untied_encoder(tensors: Tensors) -> None:
    name = "layers.1.self_attn.q_proj.weight"
    tensors[f"model.encoder.language_model.{name}"] = tensors[f"model.decoder.{name}"] * 2


FAULTS = [
    (missing, f"{QUERY} is missing"),
    (renamed, "attn.q.weight is not part of the model"),
    (renamed, f"{QUERY} is missing"),
    (transposed, f"{QUERY} has shape (48, 128), not (128, 48)"),
    (nan, f"{QUERY} has values that are not finite"),
    (infinite, f"{LAYER}input_layernorm.weight has values that are not finite"),
    (zeroed(QUERY), f"{QUERY} is all zero"),
    (zeroed("model.decoder.embed_tokens.weight"), "embed_tokens.weight is all zero"),
    (zeroed(f"{LAYER}layer_scalar"), "layer_scalar is all zero"),
    (zeroed(f"{LAYER}router.proj.weight"), "router.proj.weight is all zero"),
    (zeroed("model.decoder.self_conditioning.down_proj.weight"), "self_conditioning.down_proj.weight is all zero"),
    (one_expert_zeroed, "experts.down_proj is all zero for expert 2"),
    (an_up_half_zeroed, f"{EXPERTS} is all zero for expert 3"),
    (integers, f"{QUERY} is I8, which is not supported"),
    (untied, "lm_head.weight is not tied to model.decoder.embed_tokens.weight"),
    (an_untied_encoder, "model.encoder.language_model.layers.1.self_attn.q_proj.weight is not tied"),
]


@pytest.mark.parametrize(("damage", "says"), FAULTS, ids=[getattr(d, "__name__", "x") for d, _ in FAULTS])
def test_a_damaged_checkpoint_is_refused_by_name(
    saved: Path, tensors: Tensors, tmp_path: Path, damage: Callable[[Tensors], None], says: str
) -> None:
    damaged = {name: tensor.clone() for name, tensor in tensors.items()}
    damage(damaged)
    write_sharded(saved, tmp_path, damaged)
    with pytest.raises(CheckpointError, match=re.escape(says)):
        load_engine(tmp_path, device="cpu")


def test_tied_copies_are_accepted(saved: Path, tensors: Tensors, tmp_path: Path) -> None:
    copied = {name.replace("model.decoder.", "model.encoder.language_model."): t for name, t in tensors.items()}
    copied = {name: t.clone() for name, t in copied.items() if "scalar" not in name and "self_cond" not in name}
    head = {"lm_head.weight": tensors["model.decoder.embed_tokens.weight"].clone()}
    write_sharded(saved, tmp_path, copied | head | tensors)
    load_engine(tmp_path, device="cpu")


def test_shards_are_read_like_one_file(saved: Path, tensors: Tensors, tmp_path: Path) -> None:
    write_sharded(saved, tmp_path, tensors)
    for directory in (saved, tmp_path):
        with closing(open_checkpoint(directory)) as checkpoint:
            assert checkpoint.plan.faults == ()
            assert checkpoint.plan.consumed == len(tensor_shapes(checkpoint.config))
            assert sum(checkpoint.plan.skipped.values()) == sum("vision" in name for name in tensors)
            backbone = load_backbone(checkpoint, device=torch.device("cpu"), dtype=torch.float32)
        layer = backbone.weights.layers[2]
        wanted = [tensors[f"model.decoder.layers.2.self_attn.{part}_proj.weight"] for part in "kv"]
        assert isinstance(layer.key_value, torch.Tensor)
        assert torch.equal(layer.key_value, torch.cat(wanted))


def test_a_truncated_shard_names_what_it_cuts_off(saved: Path, tensors: Tensors, tmp_path: Path) -> None:
    write_sharded(saved, tmp_path, tensors)
    path = file_of(tmp_path, QUERY)
    path.write_bytes(path.read_bytes()[:-8])
    last = max(
        read_header(file_of(saved_copy(saved, tensors, tmp_path / "whole"), QUERY)).values(), key=lambda h: h.offset
    )
    with pytest.raises(CheckpointError, match=f"is cut off: {path.name} is truncated") as raised:
        load_engine(tmp_path, device="cpu")
    (fault,) = raised.value.faults
    assert read_header(tmp_path / "whole" / path.name)[fault.split()[0]] == last


def saved_copy(saved: Path, tensors: Tensors, directory: Path) -> Path:
    directory.mkdir()
    write_sharded(saved, directory, tensors)
    return directory


def test_a_header_that_is_cut_off_names_the_file(saved: Path, tensors: Tensors, tmp_path: Path) -> None:
    write_sharded(saved, tmp_path, tensors)
    path = file_of(tmp_path, QUERY)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CheckpointError, match=path.name):
        load_engine(tmp_path, device="cpu")


def test_a_shard_that_is_not_there_names_its_tensors(saved: Path, tensors: Tensors, tmp_path: Path) -> None:
    write_sharded(saved, tmp_path, tensors)
    path = file_of(tmp_path, QUERY)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"{path.name} is missing, and with it model"):
        load_engine(tmp_path, device="cpu")


def test_an_index_that_is_wrong_names_the_tensor(saved: Path, tensors: Tensors, tmp_path: Path) -> None:
    write_sharded(saved, tmp_path, tensors)
    index = tmp_path / "model.safetensors.index.json"
    file = file_of(tmp_path, QUERY).name
    other = next(name for name in ("model-00001-of-00004", "model-00002-of-00004") if name not in file)
    index.write_text(index.read_text().replace(f'"{QUERY}": "{file}"', f'"{QUERY}": "{other}.safetensors"'))
    with pytest.raises(CheckpointError, match=f"{QUERY} is missing from {other}"):
        load_engine(tmp_path, device="cpu")


def test_a_tensor_in_two_files_is_named(saved: Path, tensors: Tensors, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    save_file({QUERY: tensors[QUERY]}, tmp_path / "more.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=f"{QUERY} is in model.safetensors and in more.safetensors"):
        load_engine(tmp_path, device="cpu")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model-Q4_K_M.gguf"])
def test_other_formats_are_refused_with_advice(saved: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(CheckpointError, match=f"{name}: only safetensors files are read"):
        load_engine(tmp_path, device="cpu")


def test_files_are_let_go_while_they_are_read(
    saved: Path, tensors: Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sharded(saved, tmp_path, tensors)
    monkeypatch.setattr(sources, "WINDOW_BYTES", 20_000)
    opened = []

    def counted(path: Path, **options: str) -> object:
        opened.append(path)
        return safe_open(path, **options)

    monkeypatch.setattr(sources, "safe_open", counted)
    load_engine(tmp_path, device="cpu")
    size = sum(t.numel() * 4 for name, t in tensors.items() if "vision" not in name)
    assert len(opened) > size / 20_000 / 2


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="only Linux has posix_fadvise")
def test_the_files_are_read_ahead_once(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(sources, "AHEAD_BYTES", 50_000)
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, length, __: asked.append((start, start + length)))
    load_engine(saved, device="cpu")
    assert all(start >= stop for (_, stop), (start, _) in pairwise(asked))
    read = [h for name, h in read_header(saved / "model.safetensors").items() if "vision" not in name]
    for header in read:
        covered = sum(
            min(stop, header.offset + header.nbytes) - max(start, header.offset)
            for start, stop in asked
            if stop > header.offset and start < header.offset + header.nbytes
        )
        assert covered == header.nbytes
    assert len(asked) < len(read)


def test_large_tensors_come_in_pieces(saved: Path, tensors: Tensors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "PIECE_VALUES", 1000)
    with closing(open_checkpoint(saved)) as checkpoint:
        backbone = load_backbone(checkpoint, device=torch.device("cpu"), dtype=torch.float32)
    assert torch.equal(backbone.weights.embedding, tensors["model.decoder.embed_tokens.weight"])
    experts = backbone.weights.layers[1].expert_gate_up
    assert isinstance(experts, torch.Tensor)
    assert torch.equal(experts, tensors[EXPERTS])


def test_every_tensor_is_reported_once(saved: Path) -> None:
    reported: list[str] = []
    load_engine(saved, device="cpu", progress=reported.append)
    assert sorted(reported) == sorted(tensor_shapes(BackboneConfig.from_directory(saved)))


def test_no_weights_is_said(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    with pytest.raises(FileNotFoundError, match="no safetensors"):
        load_engine(tmp_path, device="cpu")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hidden_activation": "relu"}, "hidden_activation"),
        ({"use_bidirectional_attention": "all"}, "causally"),
        ({"layer_types": ["sliding_attention"]}, "layer_types names 1"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}}, "rope"),
    ],
)
def test_an_unsupported_configuration_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        BackboneConfig.from_dict({"text_config": {**TEXT, **change}})


def with_rope(kind: str, **values: object) -> dict[str, object]:
    return {"rope_parameters": {kind: {"rope_type": "proportional", "rope_theta": 1e4, **values}}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sliding_window": 0}, "sliding_window is 0, not a whole number"),
        ({"sliding_window": None}, "sliding_window is null"),
        ({"sliding_window": "128"}, 'sliding_window is "128"'),
        ({"sliding_window": -128}, "sliding_window is -128"),
        ({"sliding_window": True}, "sliding_window is true"),
        ({"vocab_size": "96"}, 'vocab_size is "96"'),
        ({"hidden_size": 48.0}, "hidden_size is 48.0"),
        ({"hidden_size": [48]}, "hidden_size is [48]"),
        ({"num_hidden_layers": 10**9, "layer_types": None}, "num_hidden_layers is 1000000000"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"num_key_value_heads": 3}, "layer 0 has 3 key-value heads, which do not divide 4 num_attention_heads"),
        ({"num_global_key_value_heads": 3}, "layer 1 has 3 key-value heads"),
        ({"num_global_key_value_heads": -1}, "num_global_key_value_heads is -1"),
        ({"head_dim": 15}, "head_dim of 15, which must be even"),
        ({"top_k_experts": 5}, "top_k_experts 5 of 4 num_experts"),
        ({"top_k_experts": 0}, "top_k_experts is 0"),
        ({"final_logit_softcapping": -30.0}, "final_logit_softcapping is -30.0, not a number above 0"),
        ({"final_logit_softcapping": float("inf")}, "final_logit_softcapping is Infinity"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0"),
        ({"rms_norm_eps": "1e-6"}, 'rms_norm_eps is "1e-6"'),
        ({"max_position_embeddings": None}, "max_position_embeddings is null"),
        ({"hidden_activation": ["silu"]}, 'hidden_activation is ["silu"], not a string'),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
        ({"layer_types": "full_attention"}, 'layer_types is "full_attention", not a list'),
        ({"layer_types": ["sliding_attention"] * 3 + ["mamba"]}, "layer_types[3] 'mamba' is not supported"),
        ({"per_layer_config": [1]}, "per_layer_config is [1], not an object"),
        ({"per_layer_config": {"0": {"head_dim": "16"}}}, 'per_layer_config.0.head_dim is "16"'),
        ({"per_layer_config": {"0": 16}}, "per_layer_config.0 is 16, not an object"),
        ({"rope_parameters": "default"}, 'rope_parameters is "default", not an object'),
        ({"rope_parameters": {"rope_type": "default"}}, 'rope_parameters.rope_type is "default", not an object'),
        ({"rope_parameters": {"other": {}}}, "rope_parameters.other is not supported"),
        (with_rope("full_attention", partial_rotary_factor=0), "full_attention.partial_rotary_factor is 0"),
        (with_rope("full_attention", partial_rotary_factor=1.5), "full_attention.partial_rotary_factor is 1.5"),
        (with_rope("full_attention", partial_rotary_factor="0.25"), 'full_attention.partial_rotary_factor is "0.25"'),
        (with_rope("sliding_attention", rope_theta=0), "sliding_attention.rope_theta is 0"),
        (with_rope("sliding_attention", rope_theta=-1e4), "sliding_attention.rope_theta is -10000.0"),
        (with_rope("sliding_attention", rope_theta=float("nan")), "sliding_attention.rope_theta is NaN"),
        (with_rope("sliding_attention", factor="2"), 'sliding_attention.factor is "2"'),
    ],
)
def test_an_impossible_value_is_named(change: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        BackboneConfig.from_dict({"text_config": {**TEXT, **change}})


def test_every_impossible_value_is_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"sliding_window is 0.*; vocab_size is null"):
        BackboneConfig.from_dict({"text_config": {**TEXT, "vocab_size": None, "sliding_window": 0}})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1]", "config.json is [1], not an object"),
        ("null", "config.json is null, not an object"),
        ('{"text_config": []}', "text_config is [], not an object"),
        ('{"text_config": null}', "text_config is null, not an object"),
        ('{"model_type": ["diffusion_gemma"]}', "model_type ['diffusion_gemma']"),
        ("[" * 100_000, "config.json cannot be read"),
    ],
)
def test_a_malformed_configuration_is_said(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(says)):
        open_checkpoint(tmp_path)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ConfigError, match="'hidden_size'"):
        BackboneConfig.from_dict({"text_config": {k: v for k, v in TEXT.items() if k != "hidden_size"}})


@pytest.mark.parametrize("source", ["written", "saved", "embedded"])
def test_layer_shapes_agree_with_transformers(source: str, saved: Path) -> None:
    embedded = Path(__file__).parents[2] / "openjev_server/models/nano"
    raw = {
        "written": {"text_config": TEXT},
        "saved": json.loads((saved / "config.json").read_text()),
        "embedded": json.loads((embedded / "config.json").read_text()),
    }[source]
    theirs = DiffusionGemmaConfig(**raw).text_config
    ours = BackboneConfig.from_dict(raw)
    assert ours.window == theirs.sliding_window
    for index, layer in enumerate(ours.layers):
        assert layer.full == (theirs.layer_types[index] == "full_attention")
        assert layer.head_dim == theirs.per_layer_config[index].head_dim
        assert layer.kv_heads == theirs.per_layer_config[index].num_key_value_heads


def test_the_embedded_format_reads_back_within_half_a_level(saved: Path, tmp_path: Path) -> None:
    shapes = tensor_shapes(BackboneConfig.from_directory(saved))
    tensors = {name: value for name, value in load_file(saved / "model.safetensors").items() if name in shapes}
    write_quantised(tmp_path / FILE_NAME, tensors, {"origin": "random"})
    source = EmbeddedSource(tmp_path / FILE_NAME, shapes)
    assert {name: header.shape for name, header in source.headers.items()} == shapes
    restored = {name: source.get(name) for name in source.headers}
    assert restored.keys() == tensors.keys()
    for name, value in tensors.items():
        levels = 255 if name.endswith("embed_tokens.weight") else 15
        spread = float(value.max() - value.min())
        bound = spread / levels if value.ndim > 1 and "router" not in name else 2e-3 * float(value.abs().max())
        assert float((restored[name] - value).abs().max()) <= bound, name
