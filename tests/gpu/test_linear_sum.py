"""The tests of `gpu.linear_sum` on a device."""

from tests.unit.kernels.gpu.test_linear_sum import *  # noqa: F403
