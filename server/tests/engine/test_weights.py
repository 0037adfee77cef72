"""The loader names every tensor that is not as it must be; the embedded format reads back what was written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from openjev_server.engine.config import BackboneConfig, ConfigError
from openjev_server.engine.loading import load_engine
from openjev_server.engine.quantised import FILE_NAME, EmbeddedSource, write_quantised
from openjev_server.engine.tensors import tensor_shapes
from openjev_server.engine.weights import CheckpointError
from random_models import TEXT, save_random
from safetensors.torch import load_file, save_file
from transformers import DiffusionGemmaConfig

Tensors = dict[str, torch.Tensor]
QUERY = "model.decoder.layers.1.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("random")
    save_random(path)
    return path


def nothing(tensors: Tensors) -> None:
    del tensors[QUERY]


def renamed(tensors: Tensors) -> None:
    tensors["model.decoder.layers.1.attn.q.weight"] = tensors.pop(QUERY)


def transposed(tensors: Tensors) -> None:
    tensors[QUERY] = tensors[QUERY].T[:-1].contiguous()


def nan(tensors: Tensors) -> None:
    tensors[QUERY][3, 3] = torch.nan


def untied(tensors: Tensors) -> None:
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"] + 1


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (nothing, f"{QUERY} is missing"),
        (renamed, "attn.q.weight is not part of the model"),
        (transposed, f"{QUERY} has shape"),
        (nan, f"{QUERY} has values that are not finite"),
        (untied, "lm_head.weight is not tied"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_name(
    saved: Path, tmp_path: Path, damage: Callable[[Tensors], None], says: str
) -> None:
    (tmp_path / "config.json").write_text((saved / "config.json").read_text())
    tensors = load_file(saved / "model.safetensors")
    damage(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=says.replace(".", r"\.")):
        load_engine(tmp_path, device="cpu")


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
