"""The tests of `worker.gpu.draft` on a device."""

from tests.unit.worker.gpu.test_gpu_draft import *  # noqa: F403
