"""The tests of `gpu.all_reduce` on a device."""

from tests.unit.kernels.gpu.test_all_reduce import *  # noqa: F403
