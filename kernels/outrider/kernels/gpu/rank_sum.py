"""Sum of what all ranks have gathered plus the residual, in the order of ranks.

Leaves the gathering to the library (NCCL, gloo): it only moves bytes. A library's all-reduce adds
on the way, in an order that depends on where a row stands (docs/decisions/0008).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.compilation import Compilation
from outrider.kernels.gpu.tensors import check

TILE = 1024
"""Numbers of a program: eight a thread, 128 bits of each rank's 16-bit ones."""
WARPS = 4


@triton.jit
def rank_sum_kernel(parts, residual, numbers, RANKS: tl.constexpr, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    """A program: one tile of numbers, whatever rows they are of."""
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    seen = at < numbers
    total = tl.zeros((TILE,), tl.float32)
    for rank in tl.static_range(RANKS):
        total += tl.load(parts + rank * numbers + at, seen, other=0.0).to(tl.float32)
    total += tl.load(residual + at, seen, other=0.0).to(tl.float32)
    tl.store(residual + at, total.to(residual.dtype.element_ty), seen)


def rank_sum(parts: Tensor, residual: Tensor) -> None:
    """Compute residual += parts of rank 0 + parts of rank 1 + …, in float32, rounded once.

    parts: [ranks, rows, width]; residual: [rows, width] of the same dtype; both contiguous. Source:
    docs/decisions/0008, the sum of `kernels.cpu.collectives`. Traffic: (ranks + 2) * rows *
    width * size of a number, in bytes.
    """
    _check(parts, residual)
    numbers = residual.numel()
    rank_sum_kernel[(triton.cdiv(numbers, TILE),)](
        parts, residual, numbers, len(parts), TILE, num_warps=WARPS
    )


def rank_sum_reference(parts: Tensor, residual: Tensor) -> None:
    _check(parts, residual)
    total = torch.zeros_like(residual, dtype=torch.float32)
    for part in parts:
        total = total + part.float()
    residual.copy_(residual.float() + total)


def _check(parts: Tensor, residual: Tensor) -> None:
    check(residual.dtype, residual.shape, residual=residual)
    check(residual.dtype, (len(parts), *residual.shape), parts=parts)


COMPILATIONS = tuple(
    Compilation(
        kernel=rank_sum_kernel,
        name=f"{ranks} ranks, bf16",
        constants={"RANKS": ranks, "TILE": TILE},
        warps=WARPS,
        multiples=("numbers",),
    )
    for ranks in (2, 3, 4, 8)
)
