"""The tests of how passes are laid out and padded on a device."""

from tests.unit.worker.gpu.test_gpu_inputs import *  # noqa: F403
