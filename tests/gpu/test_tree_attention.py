"""The tests of `gpu.attention` on a device."""

from tests.unit.kernels.gpu.test_tree_attention import *  # noqa: F403
