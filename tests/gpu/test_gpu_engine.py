"""The tests of an engine on a device."""

from tests.unit.worker.gpu.test_gpu_engine import *  # noqa: F403
