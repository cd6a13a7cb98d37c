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


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
def test_quantised_rows_have_their_own_scales(
    kind: torch.dtype, dtype: torch.dtype, device: str
) -> None:
    residual = normal(5, 96, dtype=dtype, device=device) * 3
    residual[3] = 0
    residual[4] *= 1e-3
    update = torch.zeros_like(residual)
    weight = normal(96, dtype=dtype, device=device, seed=2)
    scales, scales_expected = (unwritten(5, dtype=torch.float32, device=device) for _ in range(2))
    out, expected = (torch.full((5, 96), 99, device=device).to(kind) for _ in range(2))
    add_norm(residual, update, weight, 1e-5, out, scales)
    add_norm_reference(residual.clone(), update, weight, 1e-5, expected, scales_expected)
    assert_close(scales, scales_expected)
    unequal = out.view(torch.uint8) != expected.view(torch.uint8)
    assert unequal.float().mean() < 0.01  # a value halfway between two codes may go either way
    assert_close(out.float() * scales[:, None], expected.float() * scales[:, None], torch.bfloat16)


def test_every_float_becomes_the_fp8_that_torch_makes_of_it(device: str) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    exact = codes[codes.isfinite()]
    between = (exact.sort().values[1:] + exact.sort().values[:-1]) / 2
    row = torch.cat([exact, between, between * 1.001, between * 0.999]).to(device)[None]
    rms = row.square().mean().sqrt()
    out = torch.zeros_like(row).to(torch.float8_e4m3fn)
    scales = unwritten(1, dtype=torch.float32, device=device)
    add_norm(row.clone(), None, rms.expand(row.shape[1]).contiguous(), 0.0, out, scales)
    expected = torch.zeros_like(out)
    add_norm_reference(
        row.clone(), None, rms.expand(row.shape[1]).contiguous(), 0.0, expected, scales.clone()
    )
    assert (out.float() != expected.float()).float().mean() < 0.02
    assert_close(out.float(), expected.float(), torch.bfloat16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": torch.ones(7)}, r"weight: \(7,\), wanted \(8,\)"),
        ({"update": torch.ones(3, 8)}, r"update: \(3, 8\), wanted \(2, 8\)"),
        ({"scales": torch.ones(2)}, "scales: wanted exactly with int8"),
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
