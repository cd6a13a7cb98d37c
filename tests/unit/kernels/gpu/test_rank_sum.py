import pytest
import torch

from outrider.kernels.gpu.rank_sum import rank_sum, rank_sum_reference
from tests.kernel_outputs import normal


@pytest.mark.parametrize(("ranks", "rows", "width"), [(2, 3, 700), (3, 1, 82), (8, 2, 64)])
def test_parts_are_added_in_the_order_of_ranks(
    ranks: int, rows: int, width: int, dtype: torch.dtype, device: str
) -> None:
    parts = normal(ranks, rows, width, dtype=dtype, device=device)
    residual = normal(rows, width, dtype=dtype, device=device, seed=1)
    wanted = residual.clone()
    rank_sum(parts, residual)
    rank_sum_reference(parts, wanted)
    assert torch.equal(residual, wanted)


def test_a_row_has_the_same_bits_at_any_place(dtype: torch.dtype, device: str) -> None:
    parts = normal(3, 5, 700, dtype=dtype, device=device)
    residual = normal(5, 700, dtype=dtype, device=device, seed=1)
    alone, own = residual[3:4].clone(), parts[:, 3:4].contiguous()
    rank_sum(parts, residual)
    rank_sum(own, alone)
    assert torch.equal(residual[3:4], alone)


def test_what_does_not_fit_is_named(device: str) -> None:
    parts, residual = torch.zeros(2, 3, 4, device=device), torch.zeros(3, 5, device=device)
    with pytest.raises(ValueError, match=r"parts: torch.float32 \(2, 3, 4\), wanted .* 3, 5\)"):
        rank_sum(parts, residual)
    with pytest.raises(ValueError, match=r"residual: .* wanted contiguous"):
        rank_sum(parts, torch.zeros(4, 3, device=device).T)
