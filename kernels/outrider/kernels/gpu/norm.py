"""Residual addition and RMSNorm of a few rows in one launch, quantised by row where asked.

Leaves the matrices before and after to `linear` and `projection`.
"""

import enum
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.dependent_launch import dependent, launch_next, wait_for_inputs

WARPS = 8
INT8_LARGEST = 127
FP8_LARGEST = 448


class Quantised(enum.IntEnum):
    """Format of the normed rows."""

    NO = 0
    """The dtype of `out`: bfloat16, float16 or float32."""
    INT8 = 1
    """Symmetric int8, one scale a row."""
    FP8 = 2
    """Floats of 8 bits, e4m3 (`torch.float8_e4m3fn`), one scale a row."""


QUANTISED = {torch.int8: Quantised.INT8, torch.float8_e4m3fn: Quantised.FP8}


@triton.jit
def nearest(x):  # type: ignore[no-untyped-def]
    """Round float32 below 2^22 to the nearest integer, halves to even."""
    return (x + 12582912.0) - 12582912.0  # 1.5 * 2^23: units of its float32 are integers


@triton.jit
def e4m3_bits(x):  # type: ignore[no-untyped-def]
    """Return e4m3 bits of float32 within +-448, halves to even; any architecture."""
    bits = x.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)  # exponent bias 127 to 7
    subnormal = nearest(tl.abs(x) * 512.0).to(tl.uint32)
    code = tl.where(tl.abs(x) < 0.015625, subnormal, normal)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)


@triton.jit
def add_norm_kernel(  # type: ignore[no-untyped-def]
    residual,
    update,
    weight,
    epsilon,
    out,
    scales,
    hidden,
    QUANTISED: tl.constexpr,
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
    if QUANTISED == 0:
        tl.store(out + at, y.to(out.dtype.element_ty), inside)
    else:
        largest: tl.constexpr = 127.0 if QUANTISED == 1 else 448.0
        most = tl.maximum(tl.max(tl.abs(y), 0), 1e-30)
        tl.store(scales + row, most / largest)
        y = tl.minimum(tl.maximum(y * (largest / most), -largest), largest)
        held = nearest(y).to(tl.int8) if QUANTISED == 1 else e4m3_bits(y)
        tl.store(out + at, held, inside)


def add_norm(
    residual: Tensor,
    update: Tensor | None,
    weight: Tensor,
    epsilon: float,
    out: Tensor,
    scales: Tensor | None = None,
) -> None:
    """Compute residual += update, rounded to its dtype; out = RMSNorm(residual) * weight.

    residual, update, out: [rows, hidden], contiguous; weight: [hidden]; scales: float32 [rows],
    given exactly if `out` is int8 or float8_e4m3fn, so that out * scales is the result. `update`
    may be None. Sums are float32. Source: RMSNorm, arXiv 1910.07467, section 4. Traffic: rows *
    hidden * (3 * size of residual + size of out) + hidden * size of weight bytes.
    """
    rows, hidden = _checked(residual, update, weight, out, scales)
    kind = QUANTISED.get(out.dtype, Quantised.NO)
    held = out.view(torch.uint8) if kind is Quantised.FP8 else out
    block = triton.next_power_of_2(hidden)
    add_norm_kernel[(rows,)](
        residual, update, weight, epsilon, held, scales, hidden, kind.value, block,
        num_warps=WARPS, **dependent(),
    )  # fmt: skip


def add_norm_reference(
    residual: Tensor,
    update: Tensor | None,
    weight: Tensor,
    epsilon: float,
    out: Tensor,
    scales: Tensor | None = None,
) -> None:
    _checked(residual, update, weight, out, scales)
    if update is not None:
        residual.copy_(residual.float() + update.float())
    x = residual.float()
    y = x * torch.rsqrt(x.square().mean(1, keepdim=True) + epsilon) * weight.float()
    if scales is not None:
        largest = INT8_LARGEST if out.dtype == torch.int8 else FP8_LARGEST
        most = y.abs().amax(1, keepdim=True).clamp_min(1e-30)
        scales.copy_(most[:, 0] / largest)
        y = (y * (largest / most)).clamp(-largest, largest)
        y = y.round() if out.dtype == torch.int8 else y
    out.copy_(y.to(out.dtype))


def _checked(
    residual: Tensor, update: Tensor | None, weight: Tensor, out: Tensor, scales: Tensor | None
) -> tuple[int, int]:
    """Return rows and width; `ValueError` names a tensor that does not fit."""
    rows, hidden = residual.shape
    tensors = {"residual": residual, "update": update, "out": out, "weight": weight}
    for name, tensor in tensors.items():
        shape = (hidden,) if name == "weight" else (rows, hidden)
        if tensor is not None and (tuple(tensor.shape) != shape or not tensor.is_contiguous()):
            raise ValueError(f"{name}: {tuple(tensor.shape)}, wanted {shape}, contiguous")
    if (out.dtype in QUANTISED) != (scales is not None):
        raise ValueError(f"scales: wanted exactly with int8 or float8_e4m3fn, out is {out.dtype}")
    if scales is not None and (tuple(scales.shape) != (rows,) or scales.dtype != torch.float32):
        raise ValueError(f"scales: {scales.dtype} {tuple(scales.shape)}, wanted float32 ({rows},)")
    return rows, hidden


def _compilation(hidden: int, kind: Quantised, out: str) -> Compilation:
    constants: dict[str, Any] = {"QUANTISED": kind.value, "BLOCK": hidden, "PDL": False}
    return Compilation(
        kernel=add_norm_kernel,
        name=f"{hidden} {out.strip('*') if kind is Quantised.NO else kind.name.lower()}",
        types={"out": out},
        constants=constants | ({"scales": None} if kind is Quantised.NO else {}),
        warps=WARPS,
        multiples=("hidden",),
    )


COMPILATIONS = tuple(
    _compilation(hidden, kind, out)
    for hidden in (4096, 8192)
    for kind, out in ((Quantised.NO, "*bf16"), (Quantised.INT8, "*i8"), (Quantised.FP8, "*u8"))
)
