"""The tests of `gpu.sampling` on a device."""

from tests.unit.kernels.gpu.test_gpu_sampling import *  # noqa: F403
