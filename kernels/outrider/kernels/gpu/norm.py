"""Residual addition and RMSNorm of a few rows in one launch.

Leaves the matrices before and after to `linear` and `projection`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.dependent_launch import dependent, launch_next, wait_for_inputs

WARPS = 8


@triton.jit
def add_norm_kernel(  # type: ignore[no-untyped-def]
    residual,
    update,
    weight,
    epsilon,
    out,
    hidden,
    BLOCK: tl.constexpr,
    PDL: tl.constexpr,
):
    """One program a row."""
    launch_next(PDL)
    wait_for_inputs(PDL)
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < hidden
    at = row * hidden + columns
    x = tl.load(residual + at, inside, other=0.0).to(tl.float32)
    if update is not None:
        x += tl.load(update + at, inside, other=0.0).to(tl.float32)
        held = x.to(residual.dtype.element_ty)
        tl.store(residual + at, held, inside)
        x = held.to(tl.float32)
    mean = tl.sum(x * x, 0) / hidden
    y = x * tl.rsqrt(mean + epsilon) * tl.load(weight + columns, inside, other=0.0).to(tl.float32)
    tl.store(out + at, y.to(out.dtype.element_ty), inside)


def add_norm(
    residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float, out: Tensor
) -> None:
    """Compute residual += update, rounded to its dtype; out = RMSNorm(residual) * weight.

    residual, update, out: [rows, hidden], contiguous; weight: [hidden]. `update` may be None. Sums
    are float32. Source: RMSNorm, arXiv 1910.07467, section 4. Traffic: rows *
    hidden * (3 * size of residual + size of out) + hidden * size of weight bytes.
    """
    rows, hidden = _checked(residual, update, weight, out)
    block = triton.next_power_of_2(hidden)
    add_norm_kernel[(rows,)](
        residual, update, weight, epsilon, out, hidden, block, num_warps=WARPS, **dependent()
    )


def add_norm_reference(
    residual: Tensor, update: Tensor | None, weight: Tensor, epsilon: float, out: Tensor
) -> None:
    _checked(residual, update, weight, out)
    if update is not None:
        residual.copy_(residual.float() + update.float())
    x = residual.float()
    y = x * torch.rsqrt(x.square().mean(1, keepdim=True) + epsilon) * weight.float()
    out.copy_(y.to(out.dtype))


def _checked(
    residual: Tensor, update: Tensor | None, weight: Tensor, out: Tensor
) -> tuple[int, int]:
    """Return rows and width; `ValueError` names a tensor that does not fit."""
    rows, hidden = residual.shape
    tensors = {"residual": residual, "update": update, "out": out, "weight": weight}
    for name, tensor in tensors.items():
        shape = (hidden,) if name == "weight" else (rows, hidden)
        if tensor is not None and (tuple(tensor.shape) != shape or not tensor.is_contiguous()):
            raise ValueError(f"{name}: {tuple(tensor.shape)}, wanted {shape}, contiguous")
    return rows, hidden


def _compilation(hidden: int) -> Compilation:
    return Compilation(
        kernel=add_norm_kernel,
        name=f"{hidden} bf16",
        constants={"BLOCK": hidden, "PDL": False},
        warps=WARPS,
        multiples=("hidden",),
    )


COMPILATIONS = tuple(map(_compilation, (4096, 8192)))
