"""The released model: its tensors are those that transformers saves, and its configuration cannot be changed unseen."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openjev_server.engine.config import BackboneConfig, ConfigError
from openjev_server.engine.loading import load_engine
from openjev_server.engine.released import DIFFUSIONGEMMA_26B_A4B, DIFFUSIONGEMMA_26B_A4B_TEXT
from openjev_server.engine.tensors import SKIPPED_PREFIXES, tensor_shapes

FIXTURES = Path(__file__).parents[3] / "fixtures"
LISTED = json.loads((FIXTURES / "dgemma_tensors.json").read_text(encoding="utf-8"))
Raw = dict[str, Any]


def released() -> Raw:
    return {"model_type": "diffusion_gemma", "text_config": copy.deepcopy(dict(DIFFUSIONGEMMA_26B_A4B_TEXT))}


def test_we_read_exactly_the_text_tensors_that_the_class_has() -> None:
    shapes = tensor_shapes(BackboneConfig.from_dict(released()))
    assert {name: list(shape) for name, shape in shapes.items()} == {n: t["shape"] for n, t in LISTED["text"].items()}
    assert {tensor["dtype"] for tensor in LISTED["text"].values()} == {"bfloat16"}
    assert LISTED["vision_prefixes"] == list(SKIPPED_PREFIXES)


def test_the_list_adds_up_to_the_published_files() -> None:
    # Tensors and bytes of the 11 shards, by their headers.
    assert (LISTED["saved_tensors"], LISTED["saved_bytes"]) == (1047, 51_647_562_456)


def test_the_list_is_what_its_script_writes() -> None:
    spec = importlib.util.spec_from_file_location("make_dgemma_tensors", FIXTURES / "make_dgemma_tensors.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.tensor_list()
    assert {**made, "source": ""} == {**LISTED, "source": ""}
    assert json.loads(script.render(LISTED)) == LISTED


def test_the_configuration_is_read_as_transformers_saves_it() -> None:
    from transformers import DiffusionGemmaConfig

    saved = DiffusionGemmaConfig(**released()).to_dict()
    assert "05" in saved["text_config"]["per_layer_config"]
    assert BackboneConfig.from_dict(saved) == BackboneConfig.from_dict(released())


def test_the_released_configuration_is_accepted_also_with_its_defaults_left_out() -> None:
    full = BackboneConfig.from_dict(released())
    short = released()
    for name in ("layer_types", "rope_parameters", "rms_norm_eps", "final_logit_softcapping", "hidden_activation"):
        del short["text_config"][name]
    assert BackboneConfig.from_dict(short) == full
    short["text_config"]["max_position_embeddings"] = 32_768  # a fine-tuned model's own affair
    BackboneConfig.from_dict(short)


def set_text(**values: object) -> Callable[[Raw], None]:
    return lambda raw: raw["text_config"].update(values)


def set_rope(kind: str, **values: object) -> Callable[[Raw], None]:
    return lambda raw: raw["text_config"]["rope_parameters"][kind].update(values)


def make_sliding(raw: Raw) -> None:
    raw["text_config"]["layer_types"][5] = "sliding_attention"


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (set_text(sliding_window=512), "sliding_window is 512, not 1024"),
        (set_text(final_logit_softcapping=50.0), "final_logit_softcapping is 50.0, not 30.0"),
        (set_text(final_logit_softcapping=None), "final_logit_softcapping"),
        (set_text(vocab_size="262144"), 'vocab_size is "262144"'),
        (set_text(vocab_size=262144.0), "vocab_size is 262144.0"),
        (set_text(top_k_experts=4), "top_k_experts is 4, not 8"),
        (set_text(head_dim=128), "head_dim is 128, not 256"),
        (set_text(global_head_dim=256), "global_head_dim is 256, not 512"),
        (set_text(num_key_value_heads=4), "num_key_value_heads is 4, not 8"),
        (set_text(num_global_key_value_heads=8), "num_global_key_value_heads is 8, not 2"),
        (set_text(num_attention_heads=8), "num_attention_heads is 8, not 16"),
        (set_text(intermediate_size=9216), "intermediate_size is 9216, not 2112"),
        (set_text(moe_intermediate_size=1408), "moe_intermediate_size is 1408, not 704"),
        (set_text(hidden_activation="silu"), "hidden_activation is 'silu', not 'gelu_pytorch_tanh'"),
        (set_text(rms_norm_eps=1e-5), "rms_norm_eps is 1e-05, not 1e-06"),
        (set_text(query_pre_attn_scalar=256), "query_pre_attn_scalar 256 is not supported"),
        (set_text(attn_logit_softcapping=50.0), "attn_logit_softcapping 50.0 is not supported"),
        (set_text(use_bidirectional_attention="all"), "use_bidirectional_attention"),
        (set_rope("sliding_attention", rope_theta=1e6), "sliding_attention.rope_theta is 1000000.0, not 10000.0"),
        (set_rope("full_attention", rope_theta=1e4), "full_attention.rope_theta is 10000.0, not 1000000.0"),
        (
            set_rope("full_attention", partial_rotary_factor=0.5),
            "full_attention.partial_rotary_factor is 0.5, not 0.25",
        ),
        (set_rope("full_attention", rope_type="default"), "rope_type 'default' with a partial_rotary_factor"),
        (set_rope("full_attention", rope_type="yarn"), "rope .*yarn.* is not supported"),
        (make_sliding, r"layer_types\[5\] is 'sliding_attention', not 'full_attention'"),
        (set_text(tie_word_embeddings=False), "untied output head"),
        (lambda raw: raw.update(tie_word_embeddings=False), "tie_word_embeddings must be true"),
    ],
)
def test_a_wrong_value_is_named_before_a_weight_is_read(tmp_path: Path, damage: Any, says: str) -> None:
    raw = released()
    damage(raw)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    with pytest.raises(ConfigError, match=says):
        load_engine(tmp_path, device="cpu")


def test_it_says_which_model_is_meant() -> None:
    raw = released()
    raw["text_config"]["sliding_window"] = 512
    with pytest.raises(ConfigError, match=DIFFUSIONGEMMA_26B_A4B):
        BackboneConfig.from_dict(raw)
