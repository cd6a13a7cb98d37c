"""What tests of GPU kernels share: outputs nobody wrote, seeded inputs, one tolerance per dtype.

Leaves the device and the dtypes to the fixtures of the folder that runs a test.
"""

import torch
from torch import Tensor

TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
"""Largest difference allowed, by dtype, in units of the largest value expected."""


def unwritten(*shape: int, dtype: torch.dtype, device: str) -> Tensor:
    """An output full of NaN, or of the largest integer: whatever a kernel leaves out shows."""
    if dtype.is_floating_point:
        return torch.full(shape, torch.nan, device=device).to(dtype)
    return torch.full(shape, torch.iinfo(dtype).max, dtype=dtype, device=device)


def normal(*shape: int, dtype: torch.dtype, device: str, seed: int = 0) -> Tensor:
    """Standard normal values, the same for the same seed and shape on any device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator).to(device, dtype)


def assert_close(result: Tensor, expected: Tensor, dtype: torch.dtype | None = None) -> None:
    """Equal within the tolerance of `dtype`, or of the result's own; NaN is never close."""
    difference = (result.double() - expected.double()).abs().max().item()
    limit = TOLERANCE[dtype or result.dtype] * max(1.0, expected.double().abs().max().item())
    assert difference <= limit, f"differs by {difference:.3g}, allowed {limit:.3g}"
