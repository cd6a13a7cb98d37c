"""Kernels and passes at the shapes of real models: compiled alone, on a device (`gpu_device`)."""

import pytest
import torch

from tests.gpu_device import INTERPRETED, device, ignored

__all__ = ["collect_ignore_glob", "device"]
collect_ignore_glob = ["test_*"] if INTERPRETED else ignored("numba", "matplotlib")


@pytest.fixture(autouse=True)
def memory(device: str) -> None:
    """What tests before have left goes back to the device: several run beside each other."""
    if device == "cuda":
        torch.cuda.empty_cache()
