import itertools

import pytest
import torch
from torch import Tensor

from outrider.kernels.gpu.library_linear import library_linear
from outrider.kernels.gpu.linear import linear, linear_reference
from outrider.kernels.gpu.tiles import make_scratch
from outrider.kernels.gpu.tiling import Tiling, plan
from outrider.kernels.gpu.weights import WeightFormat, Weights
from tests.gpu_device import DTYPES
from tests.kernel_outputs import assert_close, normal, unwritten
from tests.linear_layers import assert_rows_are_independent, layer, scratch_for
from tests.pairwise import pairwise

FORMATS = list(WeightFormat)


def run(x: Tensor, weights: Weights, splits: int | None = None, launches: int = 1) -> Tensor:
    out = unwritten(len(x), weights.outputs, dtype=x.dtype, device=str(x.device))
    cut = plan(weights, splits=splits)
    assert splits in (None, cut.splits)
    scratch = scratch_for(len(x), cut, str(x.device))
    for _ in range(launches):
        linear(x, weights, out, scratch, cut)
        assert not scratch.arrivals.any()
    return out


def expected(x: Tensor, weights: Weights) -> Tensor:
    out = unwritten(len(x), weights.outputs, dtype=x.dtype, device=str(x.device))
    linear_reference(x, weights, out, make_scratch(len(x), [], str(x.device)))
    return out


@pytest.mark.parametrize(
    ("kind", "shape", "dtype"),
    pairwise(kind=FORMATS, shape=[(1, 64, 1), (5, 200, 2), (16, 144, 3)], dtype=DTYPES),
    indirect=["dtype"],
)
def test_products_are_those_of_the_dense_matrix(
    kind: WeightFormat, shape: tuple[int, int, int], dtype: torch.dtype, device: str
) -> None:
    rows, outputs, splits = shape
    weights = layer(kind, outputs, 768, dtype, device)
    x = normal(rows, 768, dtype=dtype, device=device)
    assert_close(run(x, weights, splits), expected(x, weights))


@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_the_librarys_products_are_those_of_the_dense_matrix(
    kind: WeightFormat, dtype: torch.dtype, device: str
) -> None:
    weights = layer(kind, 200, 768, dtype, device)
    x = normal(128, 768, dtype=dtype, device=device)
    out = unwritten(128, 200, dtype=dtype, device=device)
    assert library_linear(x, weights, out) is out
    assert_close(out, expected(x, weights))
    assert torch.equal(library_linear(x, weights), out)


@pytest.mark.parametrize("kind", [WeightFormat.PLAIN, WeightFormat.FP8], ids=str)
def test_inputs_need_not_fill_a_tile(kind: WeightFormat, dtype: torch.dtype, device: str) -> None:
    weights = layer(kind, 80, 456, dtype, device)
    x = normal(3, 456, dtype=dtype, device=device)
    assert_close(run(x, weights, 2), expected(x, weights))


def test_more_rows_than_a_tile_has(dtype: torch.dtype, device: str) -> None:
    weights = layer(WeightFormat.PLAIN, 80, 512, dtype, device)
    x = normal(35, 512, dtype=dtype, device=device)
    assert_close(run(x, weights, 2), expected(x, weights))


@pytest.mark.parametrize(
    ("kind", "count", "dtype"),
    pairwise(kind=FORMATS, count=[18, 70], dtype=DTYPES),
    indirect=["dtype"],
)
def test_a_row_has_the_same_bits_whatever_runs_beside_it(
    kind: WeightFormat, count: int, dtype: torch.dtype, device: str
) -> None:
    weights = layer(kind, 72, 512, dtype, device)
    x = normal(count, 512, dtype=dtype, device=device)
    assert_rows_are_independent(lambda rows: run(rows, weights, 2), x)


def test_a_launch_leaves_the_scratch_as_it_was(device: str) -> None:
    weights = layer(WeightFormat.PLAIN, 80, 512, torch.float16, device)
    x = normal(3, 512, dtype=torch.float16, device=device)
    assert torch.equal(run(x, weights, 2, launches=3), run(x, weights, 2))


def test_a_layer_is_split_until_it_keeps_the_memory_busy() -> None:
    def cut(outputs: int, inputs: int) -> Tiling:
        nothing = torch.empty(0, dtype=torch.bfloat16)
        return plan(Weights(WeightFormat.PLAIN, outputs, inputs, nothing))

    assert cut(28672, 4096).splits == 1  # 448 programs are more than run at once
    assert (cut(1024, 4096).tiles, cut(1024, 4096).splits) == (16, 4)
    assert cut(1024, 512).splits == 1  # reading takes less than meeting would
    whole = [cut(outputs, 8192) for outputs in range(64, 16384, 64)]
    assert all(one.splits * one.share >= 8192 > (one.splits - 1) * one.share for one in whole)


@pytest.mark.parametrize("kind", FORMATS, ids=str)
@pytest.mark.parametrize("dtype_name", ["bfloat16", "float32"])
def test_a_programs_tiles_fit_the_shared_memory_of_its_device(
    kind: WeightFormat, dtype_name: str
) -> None:
    """Those of an H100, an A100, and an L4, on which heads are at most 128 wide; for any rows."""
    values = torch.empty(0, dtype=getattr(torch, dtype_name))
    width = values.element_size()
    weight = width if kind is WeightFormat.PLAIN else {WeightFormat.FP8: 1}.get(kind, 0.5)
    devices = {232_448: 128, 166_912: 128, 101_376: 64}
    for shared, columns in itertools.product(devices, (None, 16, 32, 64, 128)):
        if columns and columns > devices[shared]:
            continue
        cut = plan(Weights(kind, 4096, 4096, values), columns, shared=shared)
        tiles = 2 * cut.columns * cut.block * weight + 16 * cut.parts * cut.block * width
        assert (cut.stages - 1) * tiles <= shared, (shared, columns)


def test_results_may_be_wider_than_inputs(device: str) -> None:
    weights = layer(WeightFormat.PLAIN, 64, 256, torch.float16, device)
    x = normal(2, 256, dtype=torch.float16, device=device)
    out = unwritten(2, 64, dtype=torch.float32, device=device)
    linear(x, weights, out, scratch_for(2, plan(weights), device))
    assert_close(out, x.float() @ weights.values.float().T)


def test_what_does_not_fit_is_named(device: str) -> None:
    weights = layer(WeightFormat.PLAIN, 64, 256, torch.float32, device)
    scratch = make_scratch(2, [plan(weights)], device)
    x, out = torch.ones(2, 256, device=device), torch.ones(2, 64, device=device)
    with pytest.raises(ValueError, match=r"out: \(2, 63\), wanted \(2, 64\)"):
        linear(x, weights, out[:, :63], scratch)
    with pytest.raises(ValueError, match=r"x: \(2, 128\), wanted \[rows, 256\]"):
        linear(x[:, :128], weights, out, scratch)
    with pytest.raises(ValueError, match=r"x: torch.float16, wanted the weights' torch.float32"):
        linear(x.half(), weights, out, scratch)
    with pytest.raises(ValueError, match="scratch: made for fewer than 20 rows"):
        linear(torch.ones(20, 256, device=device), weights, torch.ones(20, 64), scratch)
