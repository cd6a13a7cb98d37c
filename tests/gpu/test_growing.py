"""The tests of `gpu.growing` on a device."""

from tests.unit.kernels.gpu.test_growing import *  # noqa: F403
