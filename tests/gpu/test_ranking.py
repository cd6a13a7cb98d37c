"""The tests of `gpu.ranking` on a device."""

from tests.unit.kernels.gpu.test_ranking import *  # noqa: F403
