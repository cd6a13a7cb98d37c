"""The tests of `gpu.cache` on a device."""

from tests.unit.kernels.gpu.test_move import *  # noqa: F403
