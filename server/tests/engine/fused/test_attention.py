import numpy as np
import pytest
import torch
from openjev_server.engine.fused.attention import TILE_FIELDS, PassColumns, attend, tile_rows


@pytest.mark.parametrize("window", [None, 7])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(4, 2, 32), (8, 1, 64), (8, 1, 512)])
def test_attend_equals_a_softmax_under_a_mask(
    window: int | None, heads: int, kv_heads: int, head_dim: int, device: torch.device
) -> None:
    """A state of 20 tokens, of which 6 lie elsewhere in the pool; two blocks, the second with two replicas."""
    generator = torch.Generator().manual_seed(0)
    state, start, suffixes, widths, replicas = 20, 6, (3, 4), (5, 2), (1, 2)
    columns: dict[str, list[int]] = {"anchor": [], "position": [], "segment": [], "copy": []}

    def add(anchor: int, position: int, segment: int, copy: int) -> None:
        for name, value in zip(columns, (anchor, position, segment, copy), strict=True):
            columns[name].append(value)

    for position in range(start, state):
        add(position, position, 0, -1)
    spans, copies = [], 0
    for number, (suffix, width, count) in enumerate(zip(suffixes, widths, replicas, strict=True), start=1):
        first = len(columns["copy"])
        for offset in range(suffix):
            add(state + offset, state + offset, number, -1)
        for _ in range(count):
            for offset in range(width):
                add(state + suffix, state + suffix + offset, number, copies)
            copies += 1
        spans.append((first, len(columns["copy"])))
    n = len(columns["copy"])
    pool = torch.randperm(60, generator=generator)[: n + start]
    store, table = pool[:n], torch.cat([pool[n:], pool[: state - start]])
    keys, values = (torch.randn(60, kv_heads, head_dim, generator=generator).to(device) for _ in range(2))
    keys[pool.max() + 1 :] = float("nan")
    # Scores of a spread of 5, whatever the head_dim: sharp, and still exact to 1e-5 in float32.
    queries = 5 * head_dim**-0.5 * torch.randn(n, heads, head_dim, generator=generator).to(device)
    size = tile_rows(heads, kv_heads, head_dim)
    low = 0 if window is None else max(0, start - window + 1)
    tiles = [[0, state - start, 0, low, state, 0, 0, 0], [0] * TILE_FIELDS]
    assert state - start <= size
    low = 0 if window is None else max(0, state - window + 1)
    blocks = range(spans[0][0], n, size)
    tiles += [[first, min(size, n - first), 0, low, state, spans[0][0], n, 0] for first in blocks]

    def column(values: list[int] | torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.int32).to(device)

    shown = PassColumns(
        **{name: column(values) for name, values in columns.items()}, store=column(store), table=column(table)
    )
    rows = column(list(range(n)))
    mixed = attend(queries, keys, values, rows, shown, torch.tensor(tiles, dtype=torch.int32).to(device), window)

    place = torch.cat([table, store[state - start :]]).to(device)
    key_position = np.array([*range(state), *columns["position"][state - start :]])
    key_segment = np.array([0] * state + columns["segment"][state - start :])
    key_copy = np.array([-1] * state + columns["copy"][state - start :])
    for row in range(n):
        anchor, segment, copy = (columns[name][row] for name in ("anchor", "segment", "copy"))
        seen = (key_copy == -1) & ((key_segment == 0) | (key_segment == segment)) & (key_position <= anchor)
        if window is not None:
            seen &= key_position > anchor - window
        if copy >= 0:
            seen |= key_copy == copy
        chosen = place[torch.from_numpy(np.flatnonzero(seen)).to(device)]
        for head in range(heads):
            mine = head // (heads // kv_heads)
            weights = (keys[chosen, mine] @ queries[row, head]).softmax(-1)
            assert torch.allclose(mixed[row, head], weights @ values[chosen, mine], atol=1e-5), (row, head)
