"""Small random DiffusionGemma checkpoints, and transformers' own answer to an engine request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from openjev_server.engine.protocol import CanvasBlock, EngineRequest, Redraw, SelfConditioning
from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion
from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
    EntropyBoundSampler,
    EntropyBoundSamplerConfig,
)

VOCAB = 96
WINDOW = 12

TEXT = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 24,
    "max_position_embeddings": 4096,
    "use_bidirectional_attention": "vision",
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1_000_000.0},
    },
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "model_type": "gemma4_vision",
}


def save_random(directory: Path, **text: object) -> DiffusionGemmaForBlockDiffusion:
    """Writes a random checkpoint whose norms, scalars and routers all differ from their defaults."""
    torch.manual_seed(7)
    config = DiffusionGemmaConfig(text_config={**TEXT, **text}, vision_config=VISION, canvas_length=16)
    model = DiffusionGemmaForBlockDiffusion(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.3, 0.9)
            elif "router" in name:
                parameter.normal_(std=0.5)
            else:
                parameter.normal_(std=parameter.shape[-1] ** -0.5)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.uniform_(0.6, 1.4)
    model.save_pretrained(directory)
    return model


@torch.no_grad()
def reference(
    model: DiffusionGemmaForBlockDiffusion, request: EngineRequest, block: CanvasBlock, replica: int
) -> list[torch.Tensor]:
    """Stock transformers, one prompt and one canvas: candidate log-probabilities [K] after each step."""
    prompt = torch.from_numpy(np.concatenate([request.state, block.suffix]).astype(np.int64))[None]
    canvas = torch.from_numpy(block.canvases[replica].astype(np.int64))[None]
    vocabulary = model.config.text_config.vocab_size
    slots = torch.from_numpy(block.slots.astype(np.int64))
    candidates = [
        torch.from_numpy(block.candidates[start:stop].astype(np.int64))
        for start, stop in zip(block.offsets, block.offsets[1:], strict=False)
    ]

    def hide_frozen(_: torch.nn.Module, args: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        kept = torch.zeros_like(args[1])
        kept[:, slots] = args[1][:, slots]
        return args[0], kept

    hooks = []
    if request.self_conditioning is SelfConditioning.SLOTS:
        hooks.append(model.model.decoder.self_conditioning.register_forward_pre_hook(hide_frozen))
    conditioning = None
    answers = []
    for step in range(request.steps):
        logits = model(input_ids=prompt, decoder_input_ids=canvas, self_conditioning_logits=conditioning).logits
        log_probs = logits[0, slots].log_softmax(-1)
        answers.append(torch.cat([row[chosen] for row, chosen in zip(log_probs, candidates, strict=True)]))
        # A frozen position keeps its token: all of its distribution's mass lies there.
        conditioning = torch.nn.functional.one_hot(canvas, vocabulary).float().log().clamp_min(-1e9)
        conditioning[0, slots] = logits[0, slots]
        if request.self_conditioning is SelfConditioning.ALLOWED:
            for slot, chosen in zip(slots, candidates, strict=True):
                conditioning[0, slot] = torch.full((vocabulary,), -1e9).index_copy(0, chosen, logits[0, slot, chosen])
        conditioning = conditioning / (request.temperatures[step] if step < len(request.temperatures) else 1.0)
        if block.redraw is not None and step < request.steps - 1:
            canvas = _next_canvas(canvas, conditioning, block.redraw, slots, step, replica)
    for hook in hooks:
        hook.remove()
    return answers


def _next_canvas(
    canvas: torch.Tensor, logits: torch.Tensor, redraw: Redraw, slots: torch.Tensor, step: int, replica: int
) -> torch.Tensor:
    """transformers' sampler on a canvas [1, C], with the request's randomness in the place of its own."""
    uniforms = torch.full(canvas.shape, 0.5, dtype=torch.float64)
    uniforms[0, slots] = torch.from_numpy(redraw.uniforms[step, replica]).double()
    sums = logits.double().softmax(-1).cumsum(-1)
    sampled = (sums > uniforms[..., None]).int().argmax(-1)
    sampler = EntropyBoundSampler(EntropyBoundSamplerConfig(redraw.entropy_bound), canvas.shape[1], logits.shape[-1], 2)
    accepted = sampler.accept_canvas(canvas, sampled, logits, step)
    noise = canvas.clone()
    noise[0, slots] = torch.from_numpy(redraw.tokens[step, replica]).long()
    return torch.where(sampler.accepted_token_mask, accepted, noise)


def random_redraw(rng: np.random.Generator, block: CanvasBlock, steps: int, *, entropy_bound: float) -> Redraw:
    shape = (steps - 1, block.canvases.shape[0], len(block.slots))
    return Redraw(entropy_bound, rng.random(shape, np.float32), rng.integers(0, VOCAB, shape).astype(np.int32))


def random_block(rng: np.random.Generator, *, suffix: int, width: int, slots: int, replicas: int = 1) -> CanvasBlock:
    """A block of random tokens with `slots` slots of two to six candidates each."""
    canvas = rng.integers(0, VOCAB, width).astype(np.int32)
    canvases = np.repeat(canvas[None], replicas, 0)
    places = np.sort(rng.choice(width, slots, replace=False)).astype(np.int32)
    canvases[:, places] = rng.integers(0, VOCAB, (replicas, slots))
    candidates = [np.sort(rng.choice(VOCAB, rng.integers(2, 7), replace=False)) for _ in range(slots)]
    offsets = np.cumsum([0, *(len(c) for c in candidates)]).astype(np.int32)
    flat = np.concatenate([*candidates, np.zeros(0, np.int64)]).astype(np.int32)
    return CanvasBlock(rng.integers(0, VOCAB, suffix).astype(np.int32), canvases, places, flat, offsets)


def random_request(
    rng: np.random.Generator,
    *,
    state: int,
    blocks: list[CanvasBlock],
    steps: int = 2,
    self_conditioning: SelfConditioning = SelfConditioning.FULL,
) -> EngineRequest:
    return EngineRequest(rng.integers(0, VOCAB, state).astype(np.int32), tuple(blocks), steps, self_conditioning)
