"""Checks of tensors before a launch, which would read past the end of one that does not fit."""

from collections.abc import Sequence

import torch
from torch import Tensor


def check(dtype: torch.dtype, shape: Sequence[int], **tensors: Tensor) -> None:
    """Raise `ValueError` for the first tensor that is not contiguous, of this dtype and shape."""
    for name, tensor in tensors.items():
        if tensor.dtype != dtype or tensor.shape != tuple(shape) or not tensor.is_contiguous():
            found = f"{tensor.dtype} {tuple(tensor.shape)}"
            raise ValueError(f"{name}: {found}, wanted contiguous {dtype} {tuple(shape)}")
