"""The tests of `gpu.projection` on a device."""

from tests.unit.kernels.gpu.test_projection import *  # noqa: F403
