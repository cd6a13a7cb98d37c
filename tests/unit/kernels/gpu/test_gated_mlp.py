import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.gated_mlp import gated, gated_reference
from outrider.kernels.gpu.tiling import plan
from outrider.kernels.gpu.weights import WeightFormat, Weights
from tests.gpu_device import DTYPES
from tests.kernel_outputs import assert_close, normal, unwritten
from tests.linear_layers import assert_rows_are_independent, layer, scratch_for
from tests.pairwise import pairwise


def run(x: Tensor, weights: Weights, splits: int) -> Tensor:
    out = unwritten(len(x), weights.outputs // 2, dtype=x.dtype, device=str(x.device))
    cut = plan(weights, splits=splits)
    assert cut.splits == splits
    scratch = scratch_for(len(x), cut, str(x.device))
    gated(x, weights, out, scratch, cut)
    assert not scratch.arrivals.any()
    return out


@pytest.mark.parametrize(
    ("kind", "shape", "dtype"),
    pairwise(kind=WeightFormat, shape=[(1, 32, 1), (7, 80, 2), (17, 72, 3)], dtype=DTYPES),
    indirect=["dtype"],
)
def test_the_product_is_that_of_the_dense_halves(
    kind: WeightFormat, shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> None:
    rows, width, splits = shape
    weights = layer(kind, 2 * width, 768, dtype, device)
    x = normal(rows, 768, dtype=dtype, device=device)
    out = unwritten(rows, width, dtype=dtype, device=device)
    gated_reference(x, weights, out, scratch_for(rows, plan(weights), device))
    assert_close(run(x, weights, splits), out)


@pytest.mark.parametrize("kind", list(WeightFormat), ids=str)
def test_a_row_has_the_same_bits_whatever_runs_beside_it(
    kind: WeightFormat, dtype: torch.dtype, device: str
) -> None:
    weights = layer(kind, 144, 512, dtype, device)
    x = normal(70, 512, dtype=dtype, device=device) / 16
    assert_rows_are_independent(lambda rows: run(rows, weights, 2), x)


def test_an_output_that_does_not_fit_is_named(device: str) -> None:
    weights = layer(WeightFormat.PLAIN, 64, 256, torch.float32, device)
    scratch = scratch_for(2, plan(weights), device)
    with pytest.raises(ValueError, match=r"out: \(2, 64\), wanted \(2, 32\)"):
        gated(torch.ones(2, 256), weights, torch.ones(2, 64), scratch)
