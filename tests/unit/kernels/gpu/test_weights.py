import pytest
import torch

from outrider.kernels.gpu.weights import dense, from_groups, to_fp8

INPUTS, OUTPUTS = 256, 24
GENERATOR = torch.Generator().manual_seed(0)
QUANTS = torch.randint(0, 16, (OUTPUTS, INPUTS), generator=GENERATOR).to(torch.uint8)
ZEROS = torch.randint(0, 17, (OUTPUTS, INPUTS // 128), generator=GENERATOR)
SCALES = torch.rand(OUTPUTS, INPUTS // 128, generator=GENERATOR).half()


def test_groups_become_the_matrix_that_they_stand_for() -> None:
    weights = from_groups(QUANTS, ZEROS, SCALES)
    zeros, scales = (x.float().repeat_interleave(128, 1) for x in (ZEROS, SCALES))
    assert torch.equal(dense(weights), (QUANTS - zeros) * scales)
    assert weights.size == INPUTS * OUTPUTS // 2 + 3 * ZEROS.numel()


def test_other_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="one for each group of 128 inputs"):
        from_groups(QUANTS, ZEROS, SCALES.repeat(1, 2))


def test_fp8_keeps_three_bits_of_every_weight() -> None:
    values = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    values[3] *= 1000
    weights = to_fp8(values)
    assert torch.allclose(dense(weights), values, rtol=1 / 16, atol=0.01)
    assert torch.equal(dense(weights)[3].abs().max(), values[3].abs().max())
