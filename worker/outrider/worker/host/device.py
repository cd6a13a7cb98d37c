"""Device that a worker's models run on, and the dtypes that each device computes with.

Loads torch, which takes seconds, only where a GPU's driver is there. Leaves loading to `launch`.
"""

import importlib.util
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from outrider.contract.settings import Device, Dtype
from outrider.worker.errors import ModelError
from outrider.worker.host import torch_extra

logger = logging.getLogger(__name__)

CUDA = "cuda:"
"""Before a device's number."""
DRIVER = Path("/dev/nvidiactl")
"""Exists wherever a process can reach an NVIDIA GPU."""
INTERPRETER = "TRITON_INTERPRET"
"""Environment variable: 1 runs GPU kernels in Triton's interpreter, on the CPU."""
COMPILERS = ("gcc", "clang")
"""Compilers of which Triton takes one, unless CC names another: what launches kernels is C."""
ON_GPU = (Dtype.AUTO, Dtype.FP32, Dtype.BF16, Dtype.FP8)


def torch_device(asked: Device, driver: Path = DRIVER) -> str | None:
    """Return torch's name of the GPU runner's device; None: models run on the CPU's own path.

    A GPU that is asked for by name is the CPU's memory where kernels are interpreted, which is for
    tests. Raises `ModelError` where one is asked for and there is none.
    """
    if asked is Device.CPU:
        return None
    if asked is Device.GPU and os.environ.get(INTERPRETER) == "1":
        logger.warning("GPU kernels run in Triton's interpreter, thousands of times slower")
        return "cpu"
    missing = lacking(driver)
    if not missing:
        return f"{CUDA}0"
    if asked is Device.GPU:
        raise ModelError(
            "settings.device: gpu (engine.device: GPU of a service) is not allowed here, "
            f"{missing}; allowed: auto, cpu"
        )
    if driver.exists():
        logger.warning("there is a GPU, but %s: models run on the CPU", missing)
    return None


def lacking(driver: Path) -> str:
    """Name what a GPU runner needs and does not find; empty if nothing is missing."""
    if not driver.exists():
        return f"there is no {driver} and so no NVIDIA GPU"
    if lack := torch_extra.missing():
        return lack
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if not os.environ.get("CC") and not any(map(shutil.which, COMPILERS)):
        return f"there is no C compiler ({', '.join(COMPILERS)}), which Triton needs"
    import torch

    return "" if torch.cuda.is_available() else "torch finds no CUDA device"


def gpus() -> int:
    """Count the GPUs that this process sees."""
    import torch

    return torch.cuda.device_count()


def devices_of(
    device: str | None, ranks: int, present: Callable[[], int] = gpus
) -> list[str | None]:
    """Return one device for each rank of this machine, whose first one has `device`; None: the CPU.

    Raises `ModelError` if it has fewer GPUs.
    """
    if device is None or not device.startswith(CUDA):
        return [device] * ranks
    count = present()
    if ranks > count:
        raise ModelError(
            f"settings.tensor_parallel: {ranks} ranks on one machine are not allowed, each has a "
            f"GPU and it has {count}; allowed: at most as many, or settings.device: cpu"
        )
    return [f"{CUDA}{number}" for number in range(ranks)]


def check_dtype(dtype: Dtype, gpu: bool) -> None:
    """Raise `ModelError` for a dtype that the device does not compute with."""
    allowed = ON_GPU if gpu else tuple(d for d in Dtype if d is not Dtype.FP8)
    if dtype not in allowed:
        where = "a GPU (settings.device: cpu for the others)" if gpu else "a CPU"
        raise ModelError(f"dtype: {dtype} is not allowed on {where}; allowed: {', '.join(allowed)}")
