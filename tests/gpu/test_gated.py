"""The tests of `gpu.gated` on a device."""

from tests.unit.kernels.gpu.test_gated import *  # noqa: F403
