"""The tests of a model's passes on a device."""

from tests.unit.worker.gpu.test_gpu_model import *  # noqa: F403
