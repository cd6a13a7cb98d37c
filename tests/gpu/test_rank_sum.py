"""The tests of `gpu.rank_sum` on a device."""

from tests.unit.kernels.gpu.test_rank_sum import *  # noqa: F403
