"""The tests of `gpu.linear` on a device."""

from tests.unit.kernels.gpu.test_linear import *  # noqa: F403
