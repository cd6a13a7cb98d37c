"""The tests of `gpu.norm` on a device."""

from tests.unit.kernels.gpu.test_norm import *  # noqa: F403
