"""The tests of `worker.gpu.masks` on a device."""

from tests.unit.worker.gpu.test_gpu_masks import *  # noqa: F403
