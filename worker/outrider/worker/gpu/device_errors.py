"""Errors of a device, after which it runs nothing any more in this process.

Leaves ending the process to the engine, and starting another to whoever supervises the worker.
"""

import contextlib
from collections.abc import Iterator

import torch

from outrider.worker.errors import DeviceLost


@contextlib.contextmanager
def lasting_errors() -> Iterator[None]:
    """Raises `DeviceLost` for an error that CUDA would repeat at every further call.

    Such errors come with the first call after the kernel that failed, whatever it asks for. Too
    little memory is none of them: it ends a step.
    """
    try:
        yield
    except torch.AcceleratorError as error:
        raise DeviceLost(f"the GPU failed: {error}") from error
