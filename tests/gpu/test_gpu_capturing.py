"""The test of which graphs there are, on a device."""

from tests.unit.worker.gpu.test_gpu_capturing import *  # noqa: F403
