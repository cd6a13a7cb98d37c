"""Moves of keys and values between slots, on a GPU."""

import pytest
import torch

from outrider.kernels.gpu.cache import MAX_MOVES, move, move_reference
from tests.kernel_outputs import normal

OVERLAPS = [
    ([7, 9], [3, 4]),
    ([4, 5, 6], [3, 4, 5]),
    ([3, 4, 5], [4, 5, 6]),
    ([1, 2], [2, 1]),
    ([-1, 8, -1], [5, 6, 8]),
    ([], []),
    (list(range(1, 40)), list(range(39))),
]


@pytest.mark.parametrize(("sources", "destinations"), OVERLAPS)
def test_moves_read_everything_before_they_write(
    sources: list[int], destinations: list[int], dtype: torch.dtype, device: str
) -> None:
    pools = [normal(2, 3, 48, 80, dtype=dtype, device=device, seed=seed) for seed in (0, 1)]
    expected = [pool.clone() for pool in pools]
    pairs = [torch.tensor(x, dtype=torch.int32, device=device) for x in (sources, destinations)]
    move(*pools, *pairs)
    move_reference(*expected, *pairs)
    for pool, wanted in zip(pools, expected, strict=True):
        assert torch.equal(pool, wanted)


def test_a_pool_may_have_its_heads_inside_its_slots(device: str) -> None:
    inside = [normal(2, 48, 3, 32, dtype=torch.float32, device=device, seed=i) for i in (0, 1)]
    pools = [pool.transpose(1, 2) for pool in inside]
    expected = [pool.clone() for pool in pools]
    pairs = [torch.tensor(x, dtype=torch.int32, device=device) for x in ([4, 5], [5, 9])]
    move(*pools, *pairs)
    move_reference(*expected, *pairs)
    assert all(torch.equal(a, b) for a, b in zip(pools, expected, strict=True))


def test_moves_that_do_not_fit_are_named(device: str) -> None:
    pool = torch.zeros(1, 1, 8, 16, device=device)
    few, many = (torch.zeros(n, dtype=torch.int32, device=device) for n in (1, MAX_MOVES + 1))
    with pytest.raises(ValueError, match="513 moves, at most 512"):
        move(pool, pool, many, many)
    with pytest.raises(ValueError, match="destinations"):
        move(pool, pool, few, many)
    with pytest.raises(ValueError, match="head_dim: 8"):
        move(pool[..., :8], pool[..., :8], few, few)
