"""The fused path answers as plain PyTorch does: every kernel together, in float32 (without a GPU: interpreted)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from openjev_server.engine.assemble import assemble
from openjev_server.engine.backbone import Backbone
from openjev_server.engine.fused.backend import FusedBackend
from openjev_server.engine.fused.graphs import BUCKETS, bucket_sizes
from openjev_server.engine.fused.layout import Columns, Sizes, TileRows, columns_of, fill
from openjev_server.engine.loading import load_backbone, open_checkpoint
from openjev_server.engine.packing import PassBlock, PassItem, pack
from openjev_server.engine.protocol import EngineInfo, EngineRequest, EngineResult, SelfConditioning
from openjev_server.engine.tiles import canvas_rows, slot_rows
from random_models import VOCAB, WINDOW, random_block, random_request, save_random

INFO = EngineInfo(weights_hash="0" * 12, dtype="float32", device="cpu", vocab_size=VOCAB, max_positions=4096)
UNREAD = 999


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    path = tmp_path_factory.mktemp("random")
    # Two layers, one of each kind: the interpreter runs every program of a kernel by itself.
    save_random(path, num_hidden_layers=2, layer_types=["sliding_attention", "full_attention"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with closing(open_checkpoint(path)) as checkpoint:
        return load_backbone(checkpoint, device=device, dtype=torch.float32)


@pytest.mark.parametrize("conditioning", list(SelfConditioning))
def test_fused_equals_plain(backbone: Backbone, conditioning: SelfConditioning) -> None:
    """Two requests in one pass: a state past the window, blocks with replicas, another number of steps."""
    rng = np.random.default_rng(0)
    blocks = [
        random_block(rng, suffix=3, width=4, slots=2, replicas=2),
        random_block(rng, suffix=0, width=2, slots=1),
    ]
    first = random_request(rng, state=WINDOW + 4, blocks=blocks)
    second = random_request(rng, state=2, blocks=[random_block(rng, suffix=2, width=3, slots=2)])
    requests = [
        EngineRequest(first.state, first.blocks, 2, conditioning),
        EngineRequest(second.state, second.blocks, 1, conditioning),
    ]
    expected = assemble(backbone, INFO, token_budget=64, cache_bytes=0, fused=False).run(requests)
    for result, want in zip(
        assemble(backbone, INFO, token_budget=64, cache_bytes=0, fused=True).run(requests), expected, strict=True
    ):
        assert isinstance(result, EngineResult)
        assert isinstance(want, EngineResult)
        for one, other in zip(result.blocks, want.blocks, strict=True):
            np.testing.assert_allclose(one.log_probs, other.log_probs, atol=2e-4)
            np.testing.assert_allclose(one.logsumexp, other.logsumexp, atol=2e-4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="compares on the CPU")
def test_one_expert_and_heads_in_threes(tmp_path: Path) -> None:
    """The embedded checkpoint's shape: three query heads a key head, a dense model's one expert."""
    one = {"num_experts": 1, "top_k_experts": 1, "num_attention_heads": 6, "num_global_key_value_heads": 2}
    save_random(tmp_path, **one, num_hidden_layers=1, layer_types=["full_attention"])
    with closing(open_checkpoint(tmp_path)) as checkpoint:
        small = load_backbone(checkpoint, device=torch.device("cpu"), dtype=torch.float32)
    rng = np.random.default_rng(2)
    request = random_request(rng, state=4, blocks=[random_block(rng, suffix=2, width=3, slots=1)])
    got, want = (
        assemble(small, INFO, token_budget=64, cache_bytes=0, fused=fused).run([request])[0] for fused in (True, False)
    )
    assert isinstance(got, EngineResult)
    assert isinstance(want, EngineResult)
    np.testing.assert_allclose(got.blocks[0].log_probs, want.blocks[0].log_probs, atol=2e-4)


def packed_pass(rng: np.random.Generator):  # type: ignore[no-untyped-def]
    blocks = tuple(PassBlock(0, n, random_block(rng, suffix=n, width=4, slots=1, replicas=2)) for n in range(3))
    state = rng.integers(0, VOCAB, 20, dtype=np.int32)
    item = PassItem(state, np.arange(20), 6, 20, blocks)
    count = sum(block.rows for block in blocks)
    return pack([item], np.arange(100, 100 + count))


@pytest.mark.parametrize("later", [False, True])
def test_padding_changes_nothing(backbone: Backbone, later: bool) -> None:
    """What a captured graph runs: the same pass in a larger buffer."""
    rng = np.random.default_rng(1)
    packed = packed_pass(rng)
    blocks = list(packed.blocks)
    tiles = TileRows(64, 32)
    chosen = canvas_rows(blocks) if later else np.arange(packed.rows)
    wanted = slot_rows(blocks)
    own = np.ones(len(chosen), bool) if later else None
    columns = columns_of(packed, blocks, chosen=chosen, wanted=wanted, on_own_token=own, window=WINDOW, tiles=tiles)
    exact = columns.sizes
    roomy = Sizes(
        **{name: getattr(exact, name) + extra for name, extra in zip(Sizes.__slots__, range(1, 8), strict=True)}
    )
    assert roomy.holds(exact)
    assert not exact.holds(exact), "there is a padding row for the padding to read"
    backend = FusedBackend(backbone)
    soft = torch.randn(len(wanted), backbone.config.hidden_size, device=backbone.device) if later else None
    results = []
    for sizes in (exact, roomy):
        backend.allocate(UNREAD)
        for layer in backend._pool:
            generator = torch.Generator().manual_seed(3)
            for part in (layer.keys, layer.values):
                part.copy_(torch.randn(part.shape, generator=generator))
        buffer = np.full(sizes.total, -7, np.int32)
        fill(buffer, sizes, columns, unread_row=UNREAD)
        padded_soft = soft
        if soft is not None and sizes is roomy:
            padded_soft = torch.cat([soft, soft.new_full((sizes.wanted - len(soft), soft.shape[1]), 9.0)])
        where = torch.from_numpy(buffer).to(backbone.device)
        hidden = backend.forward(where, sizes, backend._pool, padded_soft, padded=sizes is roomy)
        results.append(hidden[: len(wanted)])
    assert torch.allclose(results[0], results[1], atol=1e-5)


def test_every_pass_of_a_bucket_fits_its_buffer() -> None:
    tiles = TileRows(64, 8)
    for later in (False, True):
        sizes = [bucket_sizes(rows, tiles, later=later) for rows in BUCKETS]
        assert [each.rows for each in sizes] == sorted(BUCKETS)
        for each in sizes:
            assert each.holds(Sizes(each.rows - 1, each.wanted, each.pass_rows, 100, 5, each.full, 3))


def test_columns_do_not_overlap() -> None:
    sizes = Sizes(5, 3, 17, 20, 2, 3, 1)
    lengths = sizes.lengths()
    columns = Columns(**{name: np.full(lengths[name], number + 1) for number, name in enumerate(lengths)})
    buffer = np.zeros(sizes.total, np.int32)
    fill(buffer, sizes, columns, unread_row=0)
    for number, (name, length) in enumerate(lengths.items()):
        start = sizes.offsets()[name]
        assert start % 16 == 0
        assert (buffer[start : start + length] == number + 1).all()
