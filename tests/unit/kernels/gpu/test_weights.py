import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.kernels.gpu.weights import dense, from_awq, from_gptq, to_fp8

INPUTS, OUTPUTS = 256, 24
AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


def numbers(seed: int, *shape: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, 16, shape)


def words(values: NDArray[np.int64], order: tuple[int, ...]) -> Tensor:
    """int32 words along the last axis: nibble i is the column order[i] of eight."""
    packed = np.zeros((values.shape[0], values.shape[1] // 8), np.int64)
    for i, column in enumerate(order):
        packed |= values[:, column::8] << (4 * i)
    return torch.from_numpy(packed.astype(np.uint32).view(np.int32))


VALUES, ZEROS = numbers(0, INPUTS, OUTPUTS), numbers(1, INPUTS // 128, OUTPUTS)
SCALES = torch.rand(INPUTS // 128, OUTPUTS, generator=torch.Generator().manual_seed(0)).half()


def matrix(zeros: NDArray[np.int64]) -> Tensor:
    spread = np.repeat(zeros, 128, 0)
    scales = np.repeat(SCALES.float().numpy(), 128, 0)
    return torch.from_numpy(((VALUES - spread) * scales).T.astype(np.float32))


def test_awq_becomes_the_matrix_that_it_stands_for() -> None:
    weights = from_awq(words(VALUES, AWQ), words(ZEROS, AWQ), SCALES)
    assert torch.equal(dense(weights), matrix(ZEROS))
    assert weights.size == INPUTS * OUTPUTS // 2 + 3 * ZEROS.size


@pytest.mark.parametrize(("version", "more"), [(1, 1), (2, 0)])
def test_gptq_becomes_the_matrix_that_it_stands_for(version: int, more: int) -> None:
    plain = tuple(range(8))
    down = words(VALUES.T.copy(), plain).T.contiguous()
    in_order = torch.arange(INPUTS) // 128
    weights = from_gptq(down, words(ZEROS, plain), SCALES, in_order, version)
    assert torch.equal(dense(weights), matrix(ZEROS + more))


def test_inputs_sorted_by_activation_are_refused() -> None:
    down = words(VALUES.T.copy(), tuple(range(8))).T
    g_idx = torch.arange(INPUTS).flip(0) // 128
    with pytest.raises(ValueError, match="g_idx: wanted groups of 128 inputs in order"):
        from_gptq(down, words(ZEROS, tuple(range(8))), SCALES, g_idx)


def test_other_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="one for each group of 128 inputs"):
        from_awq(words(VALUES, AWQ), words(ZEROS, AWQ), SCALES.repeat(2, 1))


def test_fp8_keeps_three_bits_of_every_weight() -> None:
    values = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    values[3] *= 1000
    weights = to_fp8(values)
    assert torch.allclose(dense(weights), values, rtol=1 / 16, atol=0.01)
    assert torch.equal(dense(weights)[3].abs().max(), values[3].abs().max())
