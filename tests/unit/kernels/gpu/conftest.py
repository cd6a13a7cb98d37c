"""GPU kernels against their references, on `gpu_device`'s device."""

from tests.gpu_device import device, dtype, ignored

__all__ = ["collect_ignore_glob", "device", "dtype"]
collect_ignore_glob = ignored()
