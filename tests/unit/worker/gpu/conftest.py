"""The GPU runner on CPU tensors, its kernels under Triton's interpreter; as `kernels/gpu`'s tests.

`tests/gpu` runs the same tests on a device.
"""

from tests.unit.kernels.gpu.conftest import collect_ignore_glob, device, dtype

__all__ = ["collect_ignore_glob", "device", "dtype"]
