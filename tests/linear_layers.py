"""Linear layers of every format for tests of GPU kernels, and what keeps rows apart.

Leaves what is asserted to the tests.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from outrider.kernels.gpu.tiles import TileScratch, make_scratch
from outrider.kernels.gpu.tiling import Tiling
from outrider.kernels.gpu.weights import WeightFormat, Weights, plain, to_fp8
from tests.kernel_outputs import normal


def layer(
    kind: WeightFormat, outputs: int, inputs: int, dtype: torch.dtype, device: str
) -> Weights:
    """Random weights of about 1 / sqrt(inputs)."""
    values = normal(outputs, inputs, dtype=torch.float32, device=device, seed=7) / inputs**0.5
    if kind is WeightFormat.PLAIN:
        return plain(values.to(dtype))
    if kind is WeightFormat.FP8:
        return to_fp8(values)
    generator = torch.Generator().manual_seed(8)
    groups = inputs // 128

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator).to(device)

    words = integers(-(2**15), 2**15, groups, outputs, 32).to(torch.int16)
    scales = normal(groups, outputs, dtype=torch.float16, device=device) / (4 * inputs**0.5)
    zeros = integers(0, 17, groups, outputs).to(torch.uint8)
    return Weights(WeightFormat.INT4, outputs, inputs, words, scales, zeros)


def scratch_for(rows: int, cut: Tiling, device: str) -> TileScratch:
    """A scratch whose sums are NaN until they are written."""
    scratch = make_scratch(rows, [cut], device)
    scratch.sums.fill_(torch.nan)
    return scratch


def assert_rows_are_independent(run: Callable[[Tensor], Tensor], x: Tensor) -> None:
    """`run` gives each row of x the same bits alone, among fewer or other rows, and anywhere."""
    whole = run(x)
    for count in (1, len(x) - 1):
        assert torch.equal(run(x[:count].contiguous()), whole[:count])
    others = 2 - x
    others[::4] = x[::4]
    assert torch.equal(run(others)[::4], whole[::4])
    assert torch.equal(run(x.flip(0).contiguous()).flip(0), whole)
