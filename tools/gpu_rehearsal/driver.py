"""A driver of Triton for a device that is not there: kernels are compiled, and launches do nothing.

A launch is specialised by its arguments, which are CPU tensors, as it would be on the device, and
compiled for it; shared memory, threads and the grid are checked against what the device has.
Works with triton 3.6 and later.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver

from outrider.kernels.gpu import tiles
from outrider.kernels.gpu.linear_shapes import SHARED_BY
from outrider.kernels.gpu.weights import WeightFormat

CAPABILITY = "GPU_REHEARSAL_CAPABILITY"
"""Environment variable: compute capability times ten, one of `SHARED_BY`; 90 if not set."""
LOG = "GPU_REHEARSAL_LOG"
"""Environment variable: file to which every process appends a line for each kernel."""
FP8 = 89
"""Least capability that converts e4m3 itself."""
PROPERTIES = {
    "max_num_regs": 65536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1980000,
    "mem_clock_rate": 2619000,
    "mem_bus_width": 5120,
}
"""Properties of an H100, which no kernel depends on."""
MAX_THREADS = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """A kernel that some launch asked for."""

    name: str
    hash: str
    cached: bool
    """True if it was compiled before."""
    seconds: float
    """Time that compiling took."""
    cubin: str
    """File of its machine code."""


class Launcher:
    """A launch that checks its grid."""

    def __init__(self, source: Any, metadata: Any) -> None:
        self.name = metadata.name

    def __call__(self, x: int, y: int, z: int, *rest: Any) -> None:
        """Do nothing; raises `ValueError` for a grid that the device does not take."""
        if not all(0 < size <= most for size, most in zip((x, y, z), MAX_GRID, strict=True)):
            raise ValueError(f"{self.name}: grid {(x, y, z)}, allowed: 1 to {MAX_GRID}")


class Utilities:
    """The device's properties, and machine code that nothing loads."""

    def __init__(self, capability: int) -> None:
        self.properties = {**PROPERTIES, "max_shared_mem": SHARED_BY[capability]}

    def get_device_properties(self, device: int) -> Mapping[str, int]:
        return self.properties

    def load_binary(self, *code: Any) -> tuple[int, int, int, int, int]:
        """Return module, function, registers, spills and the most threads of a block."""
        return 1, 1, 0, 0, MAX_THREADS

    def unload_module(self, module: int) -> None:
        """Do nothing."""


class AbsentDevice(DriverBase):  # type: ignore[misc]
    """One device of a compute capability, which does nothing; tensors are the CPU's."""

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.utils = Utilities(capability)
        self.launcher_cls = Launcher

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("nothing runs here, so nothing can be timed")

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        """Do nothing: there is one."""

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self.capability, 10)


def install() -> None:
    """Make this process's kernels those of an absent device, as the environment describes it."""
    if triton.knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET is set: nothing can be compiled in this process")
    capability = int(os.environ.get(CAPABILITY, "90"))
    driver.set_active(AbsentDevice(capability))
    tiles._native = lambda weights, x: weights.format is WeightFormat.FP8 and capability >= FP8
    if log := os.environ.get(LOG):
        triton.knobs.compilation.listener = Listener(Path(log))


def said(error: Exception) -> str:
    """Return type, first and last line of what was raised: where, and why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {' … '.join(dict.fromkeys((lines[0], lines[-1])))}"


class Listener:
    """Writes down every kernel that Triton compiles or finds compiled."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __call__(
        self, *, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool
    ) -> None:
        """Append a line; whole lines of several processes do not mix."""
        cubins = [path for name, path in metadata_group.items() if name.endswith(".cubin")]
        seen = LaunchedKernel(
            name=metadata["name"], hash=metadata["hash"], cached=cache_hit,
            seconds=0.0 if cache_hit else times.total / 1e6, cubin=cubins[0],
        )  # fmt: skip
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(seen)) + "\n")
