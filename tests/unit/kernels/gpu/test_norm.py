import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.norm import add_norm, add_norm_reference
from tests.gpu_device import DTYPES
from tests.kernel_outputs import assert_close, normal, unwritten
from tests.linear_layers import assert_rows_are_independent
from tests.pairwise import pairwise


@pytest.mark.parametrize(
    ("shape", "updated", "dtype"),
    pairwise(shape=[(1, 64), (3, 80), (16, 123)], updated=[True, False], dtype=DTYPES),
    indirect=["dtype"],
)
def test_the_sum_is_kept_and_normed(
    shape: tuple[int, int], updated: bool, dtype: torch.dtype, device: str
) -> None:
    rows, hidden = shape
    residual = normal(rows, hidden, dtype=dtype, device=device)
    update = normal(rows, hidden, dtype=dtype, device=device, seed=1) if updated else None
    weight = normal(hidden, dtype=dtype, device=device, seed=2)
    out, expected = (unwritten(rows, hidden, dtype=dtype, device=device) for _ in range(2))
    expected_residual = residual.clone()
    add_norm(residual, update, weight, 1e-5, out)
    add_norm_reference(expected_residual, update, weight, 1e-5, expected)
    assert torch.equal(residual, expected_residual)
    assert_close(out, expected)


def test_a_row_has_the_same_bits_whatever_runs_beside_it(dtype: torch.dtype, device: str) -> None:
    weight = normal(72, dtype=dtype, device=device, seed=2)

    def run(update: Tensor) -> Tensor:
        residual = torch.ones_like(update)
        out = unwritten(*update.shape, dtype=dtype, device=device)
        add_norm(residual, update, weight, 1e-5, out)
        return torch.cat((residual, out), 1)

    rows = normal(16, 72, dtype=dtype, device=device)
    assert_rows_are_independent(run, rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": torch.ones(7)}, r"weight: \(7,\), wanted \(8,\)"),
        ({"update": torch.ones(3, 8)}, r"update: \(3, 8\), wanted \(2, 8\)"),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(change: dict[str, torch.Tensor], message: str) -> None:
    given = {
        "residual": torch.ones(2, 8),
        "update": torch.ones(2, 8),
        "weight": torch.ones(8),
        "epsilon": 1e-5,
        "out": torch.ones(2, 8),
    }
    with pytest.raises(ValueError, match=message):
        add_norm(**{**given, **change})  # type: ignore[arg-type]
