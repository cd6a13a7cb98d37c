"""The tests of a target's steps on a device."""

from tests.unit.worker.gpu.test_gpu_target import *  # noqa: F403
