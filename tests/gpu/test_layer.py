"""The tests of all kernels of a layer on a device."""

from tests.unit.kernels.gpu.test_layer import *  # noqa: F403
