"""LoRA adapters are merged while the checkpoint is read, and are then what peft's own merge makes of them."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from canvas_tokenizers import GEMMA_CHAT, gemma_named
from openjev_server.app import create_app
from openjev_server.bundle import load_bundle, resolve_model
from openjev_server.checkpoint import load_checkpoint
from openjev_server.engine.adapter import ADAPTER_CONFIG
from openjev_server.engine.export import export
from openjev_server.engine.loading import load_engine, open_checkpoint, read_tensors
from openjev_server.engine.protocol import EngineRequest, EngineResult
from openjev_server.engine.sources import ADAPTER_WEIGHTS
from openjev_server.engine.weights import CheckpointError
from openjev_server.serving import bind, server_for, url_of
from openjev_server.settings import Settings
from random_models import random_block, random_request, reference, save_random
from safetensors.torch import load_file, save_file

DECODER = "model.decoder.layers."
TARGETS = rf"{re.escape(DECODER)}\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)"
QUERY = f"{DECODER}2.self_attn.q_proj"
A = f"base_model.model.{QUERY}.lora_A.weight"
B = f"base_model.model.{QUERY}.lora_B.weight"
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a tokenizer and a chat template."""
    path = tmp_path_factory.mktemp("base")
    save_random(path, vocab_size=512)
    gemma_named().save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(GEMMA_CHAT)
    return path


def by_hand(base: Path, directory: Path, **config: Any) -> Path:
    """An adapter of every target, as peft would save it, with matrices that do something."""
    directory.mkdir(exist_ok=True)
    generator = torch.Generator().manual_seed(1)
    made: Tensors = {}
    for name, weight in load_file(base / "model.safetensors").items():
        if re.fullmatch(TARGETS, name.removesuffix(".weight")):
            module = f"base_model.model.{name.removesuffix('.weight')}"
            made[f"{module}.lora_A.weight"] = torch.randn(3, weight.shape[1], generator=generator)
            made[f"{module}.lora_B.weight"] = torch.randn(weight.shape[0], 3, generator=generator) * 0.02
    save_file(made, directory / ADAPTER_WEIGHTS)
    (directory / ADAPTER_CONFIG).write_text(json.dumps({"peft_type": "LORA", "r": 3, "lora_alpha": 6, **config}))
    return directory


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return by_hand(base, tmp_path_factory.mktemp("adapter"))


def merged(base: Path, adapter: Path) -> Tensors:
    with closing(open_checkpoint(base, adapter=adapter)) as checkpoint:
        return {name: tensor.clone() for name, tensor in read_tensors(checkpoint)}


def request(rng: np.random.Generator) -> EngineRequest:
    return random_request(rng, state=20, blocks=[random_block(rng, suffix=5, width=6, slots=2)])


def answers(directory: Path, asked: EngineRequest, **options: Any) -> np.ndarray[Any, Any]:
    (result,) = load_engine(directory, device="cpu", dtype="float32", **options).run([asked])
    assert isinstance(result, EngineResult)
    return result.blocks[0].log_probs[:, 0]


@pytest.mark.parametrize(
    ("config", "scale"),
    [({}, 2.0), ({"use_rslora": True}, 6 / 3**0.5), ({"alpha_pattern": {r"2\.self_attn\.q_proj": 12}}, 4.0)],
)
def test_a_matrix_is_what_the_formula_says(base: Path, tmp_path: Path, config: dict[str, Any], scale: float) -> None:
    directory = by_hand(base, tmp_path / "adapter", **config)
    before, after = load_file(base / "model.safetensors"), merged(base, directory)
    low = load_file(directory / ADAPTER_WEIGHTS)
    expected = before[f"{QUERY}.weight"] + scale * low[B] @ low[A]
    torch.testing.assert_close(after[f"{QUERY}.weight"], expected)
    untouched = f"{DECODER}2.experts.gate_up_proj"
    assert torch.equal(after[untouched], before[untouched])


def test_answers_are_those_of_the_exported_merge(base: Path, adapter: Path, tmp_path: Path) -> None:
    asked = request(np.random.default_rng(5))
    export(base, tmp_path / "merged", adapter=adapter)
    served = answers(base, asked, adapter=adapter)
    np.testing.assert_allclose(served, answers(tmp_path / "merged", asked), atol=1e-6)
    assert np.abs(served - answers(base, asked)).max() > 0.01


def test_the_weights_hash_covers_the_adapter(base: Path, adapter: Path, tmp_path: Path) -> None:
    other = by_hand(base, tmp_path / "other", lora_alpha=7)
    hashes = {load_engine(base, device="cpu", adapter=chosen).info.weights_hash for chosen in (None, adapter, other)}
    assert len(hashes) == 3


def test_it_is_merged_before_the_weights_are_quantised(base: Path, adapter: Path) -> None:
    asked = request(np.random.default_rng(5))
    plain = answers(base, asked, adapter=adapter)
    quantised = answers(base, asked, adapter=adapter, weights="float8")
    without = answers(base, asked, weights="float8")
    assert np.abs(quantised - plain).max() < np.abs(quantised - without).max()


def edited(change: Callable[[Tensors], None]) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        tensors = load_file(directory / ADAPTER_WEIGHTS)
        change(tensors)
        save_file(tensors, directory / ADAPTER_WEIGHTS)

    return damage


def configured(**config: Any) -> Callable[[Path], None]:
    return lambda directory: by_hand_config(directory, config)


def by_hand_config(directory: Path, config: dict[str, Any]) -> None:
    path = directory / ADAPTER_CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


def half(tensors: Tensors) -> None:
    del tensors[A]


def untrained(tensors: Tensors) -> None:
    tensors[B].zero_()


def other_half(tensors: Tensors) -> None:
    del tensors[B]


def rankless(tensors: Tensors) -> None:
    tensors[A], tensors[B] = tensors[A][:0], tensors[B][:, :0].contiguous()


def pickled(directory: Path) -> None:
    (directory / ADAPTER_WEIGHTS).rename(directory / "adapter_model.bin")


def too_wide(tensors: Tensors) -> None:
    tensors[A] = torch.ones(3, 7)


def infinite(tensors: Tensors) -> None:
    tensors[B][0, 0] = torch.inf


def of_experts(tensors: Tensors) -> None:
    module = f"base_model.model.{DECODER}2.experts"
    tensors |= {f"{module}.lora_A.weight": torch.ones(3, 4), f"{module}.lora_B.weight": torch.ones(4, 3)}


def of_the_encoder(tensors: Tensors) -> None:
    for name in (A, B):
        own = name.replace("model.decoder", "model.encoder.language_model")
        tensors[own] = tensors[name] * 2


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (edited(half), f"{QUERY} has lora_B and no lora_A"),
        (edited(other_half), f"{QUERY} has lora_A and no lora_B"),
        (edited(rankless), f"{QUERY} has matrices (64, 0) and (0, 48) for rank 3"),
        (configured(r=0), "r is 0, not a whole number above 0"),
        (configured(r=2), f"{DECODER}0.mlp.down_proj has matrices (48, 3) and (3, 64) for rank 2"),
        (configured(rank_pattern={"q_proj": 0}), "rank_pattern.q_proj is 0"),
        (configured(lora_alpha=None), "lora_alpha is null, not a number"),
        (configured(alpha_pattern={"(": 1}), "alpha_pattern.( is no regular expression"),
        (configured(alpha_pattern=[1]), "alpha_pattern is [1], not an object"),
        (lambda directory: (directory / ADAPTER_CONFIG).write_text("[1]"), "adapter_config.json is [1], not an object"),
        (pickled, "has its weights as adapter_model.bin: only adapter_model.safetensors is read"),
        (edited(too_wide), f"{QUERY} has matrices"),
        (edited(infinite), f"{QUERY} has values that are not finite"),
        (edited(of_experts), f"{DECODER}2.experts is no matrix"),
        (edited(of_the_encoder), "model.encoder.language_model.layers.2.self_attn.q_proj.weight is adapted otherwise"),
        (edited(Tensors.clear), "no LoRA matrices"),
        (configured(peft_type="IA3"), "only LORA adapters"),
        (configured(use_dora=True, modules_to_save=["x"]), "modules_to_save, use_dora: merge it with peft"),
        (configured(init_lora_weights="pissa"), "init_lora_weights 'pissa'"),
        (configured(bias="all"), "bias 'all'"),
        (lambda directory: (directory / ADAPTER_WEIGHTS).unlink(), "no LoRA adapter in"),
        (lambda directory: (directory / ADAPTER_CONFIG).write_text("{"), "cannot be read"),
    ],
)
def test_what_cannot_be_merged_is_named(base: Path, tmp_path: Path, damage: Callable[[Path], None], says: str) -> None:
    directory = by_hand(base, tmp_path / "adapter")
    damage(directory)
    with pytest.raises(CheckpointError, match=re.escape(says)):
        load_engine(base, device="cpu", adapter=directory)


def test_a_change_of_zero_is_known(base: Path, tmp_path: Path) -> None:
    directory = by_hand(base, tmp_path / "adapter", base_model_name_or_path="someone/else")
    edited(untrained)(directory)
    with closing(open_checkpoint(base, adapter=directory)) as checkpoint:
        assert checkpoint.adapter is not None
        assert checkpoint.adapter.without_effect == (f"{QUERY}.weight",)
        assert checkpoint.adapter.base == "someone/else"


def test_the_same_change_of_encoder_and_decoder_is_one_change(base: Path, adapter: Path, tmp_path: Path) -> None:
    directory = by_hand(base, tmp_path / "both")
    tensors = load_file(adapter / ADAPTER_WEIGHTS)
    twice = {n.replace("model.decoder", "model.encoder.language_model"): t.clone() for n, t in tensors.items()}
    save_file(tensors | twice, directory / ADAPTER_WEIGHTS)
    asked = request(np.random.default_rng(5))
    np.testing.assert_array_equal(answers(base, asked, adapter=directory), answers(base, asked, adapter=adapter))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_trained_adapter_is_served_as_peft_runs_it(base: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from transformers import DiffusionGemmaForBlockDiffusion

    asked = request(np.random.default_rng(5))
    stock = DiffusionGemmaForBlockDiffusion.from_pretrained(base)
    before = torch.stack(reference(stock, asked, asked.blocks[0], 0)).numpy()
    model = peft.get_peft_model(stock, peft.LoraConfig(r=2, lora_alpha=8, target_modules=TARGETS))
    share_with_encoder(stock)
    train(model, asked)
    model.save_pretrained(tmp_path / "adapter")
    trained = torch.stack(reference(stock, asked, asked.blocks[0], 0)).numpy()
    served = answers(base, asked, adapter=tmp_path / "adapter")
    np.testing.assert_allclose(served, trained, atol=1e-4)
    assert np.abs(served - before).max() > 0.1
    peft_merge = merged_by_peft(peft, base, tmp_path / "adapter")
    for name, tensor in merged(base, tmp_path / "adapter").items():
        torch.testing.assert_close(tensor, peft_merge[name], msg=name)


def share_with_encoder(stock: Any) -> None:
    """Encoder layers run the decoder's adapted maps: they are one stack, also while it is trained."""
    encoder, decoder = stock.model.encoder.language_model, stock.model.decoder
    for own, shared in zip(encoder.layers, decoder.layers, strict=True):
        for block in ("self_attn", "mlp"):
            for name, child in getattr(shared, block).named_children():
                if name.endswith("_proj"):
                    setattr(getattr(own, block), name, child)


def train(model: Any, asked: EngineRequest) -> None:
    """A few steps towards the first candidate of each slot."""
    block = asked.blocks[0]
    prompt = torch.from_numpy(np.concatenate([asked.state, block.suffix]).astype(np.int64))[None]
    canvas = torch.from_numpy(block.canvases[0].astype(np.int64))[None]
    slots = torch.from_numpy(block.slots.astype(np.int64))
    wanted = torch.from_numpy(block.candidates[block.offsets[:-1]].astype(np.int64))
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.02)
    for _ in range(4):
        logits = model(input_ids=prompt, decoder_input_ids=canvas).logits[0, slots]
        loss = torch.nn.functional.cross_entropy(logits, wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()


def merged_by_peft(peft: Any, base: Path, adapter: Path) -> Tensors:
    """Encoder and decoder share a parameter, so the change must be added once: under one of the names."""
    from transformers import DiffusionGemmaForBlockDiffusion

    config = json.loads((adapter / ADAPTER_CONFIG).read_text())
    tensors = load_file(adapter / ADAPTER_WEIGHTS)
    assert all(".encoder." in name for name in tensors)
    decoder = {name.replace("model.encoder.language_model", "model.decoder"): t for name, t in tensors.items()}
    once = adapter.parent / "once"
    once.mkdir()
    save_file(decoder, once / ADAPTER_WEIGHTS)
    (once / ADAPTER_CONFIG).write_text(json.dumps(config))
    adapter = once
    model = DiffusionGemmaForBlockDiffusion.from_pretrained(base)
    whole = peft.PeftModel.from_pretrained(model, adapter).merge_and_unload()
    state: Tensors = whole.state_dict()
    return state


def test_it_is_served_over_http(base: Path, adapter: Path, tmp_path: Path) -> None:
    export(base, tmp_path / "merged", adapter=adapter)
    asked = {
        "model": "jev-latest",
        "state": "the user said true",
        "questions": {"q": {"type": "choice", "instructions": "which?", "criteria": {"refund": None, "invoice": None}}},
    }
    answered = {}
    for name, settings in {
        "adapter": Settings(model=str(base), adapter=str(adapter), decimals=6),
        "merged": Settings(model=str(tmp_path / "merged"), decimals=6),
        "base": Settings(model=str(base), decimals=6),
    }.items():
        with serving(settings) as client:
            response = client.post("/v1/systemone", json=asked)
        assert response.status_code == 200
        answered[name] = response.json()["answers"]["q"]["probabilities"]
    assert answered["adapter"] == pytest.approx(answered["merged"], abs=1e-5)
    assert answered["adapter"] != pytest.approx(answered["base"], abs=1e-3)


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[httpx.Client]:
    """A server on a socket of its own, ready."""
    directory = resolve_model(settings.model)
    listener = bind("127.0.0.1", 0)
    server = server_for(create_app(load_checkpoint(directory, settings), settings, load_bundle(directory)), settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        with httpx.Client(base_url=url_of(listener), timeout=20) as client:
            while not server.started or client.get("/ready").status_code != 200:
                thread.join(0.01)
            yield client
    finally:
        server.should_exit = True
        thread.join(15)
        listener.close()
