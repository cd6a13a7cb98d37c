"""The tests of rows whose bits are their own on a device."""

from tests.unit.worker.gpu.test_gpu_same_bits import *  # noqa: F403
