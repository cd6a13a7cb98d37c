"""Linear layers for few rows: x @ W.T with weights in bfloat16, e4m3 or int4, split over inputs.

Leaves the packing of weights to `weights`, and sums over ranks to the all-reduce.
"""

import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.dependent_launch import dependent, launch_next, wait_for_inputs
from outrider.kernels.gpu.linear_shapes import compilations
from outrider.kernels.gpu.tiles import TileScratch, gathered, launch, products
from outrider.kernels.gpu.tiling import LINES, Tiling, plan
from outrider.kernels.gpu.weights import Weights, dense


@triton.jit(do_not_specialize=["rows", "splits"])
def linear_kernel(  # type: ignore[no-untyped-def]
    x, weights, scales, zeros, sums, arrivals,
    rows, inputs, outputs, splits, share,
    out,
    FORMAT: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
    NATIVE: tl.constexpr, PARTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A program: PARTS of 16 rows, two neighbouring tiles of outputs, one split."""
    row = tl.program_id(0) * PARTS * LINES
    tile = tl.program_id(1)
    split = tl.program_id(2)
    first = tile.to(tl.int64) * (2 * COLUMNS) + tl.arange(0, COLUMNS)
    second = first + COLUMNS
    begin = split * share
    wait_for_inputs(PDL)
    ones, others = products(
        x, weights, scales, zeros, row, rows, inputs, outputs, first, second,
        first < outputs, second < outputs, begin, tl.minimum(begin + share, inputs),
        FORMAT, COLUMNS, BLOCK, EVEN, NATIVE, PARTS,
    )  # fmt: skip
    launch_next(PDL)
    place = (tile * tl.num_programs(0) + tl.program_id(0)) * PARTS
    for part in tl.static_range(PARTS):
        begin_row = row + part * LINES
        one, other, last = gathered(
            ones[part], others[part], sums, arrivals, place + part, begin_row, rows, split, splits,
            COLUMNS,
        )  # fmt: skip
        if last:
            lines = begin_row + tl.arange(0, LINES)
            at = out + lines.to(tl.int64)[:, None] * outputs
            seen = (lines < rows)[:, None]
            kind: tl.constexpr = out.dtype.element_ty
            tl.store(at + first[None, :], one.to(kind), seen & (first < outputs))
            tl.store(at + second[None, :], other.to(kind), seen & (second < outputs))


def linear(
    x: Tensor, weights: Weights, out: Tensor, scratch: TileScratch, cut: Tiling | None = None
) -> None:
    """Compute out = x @ W.T, summed in float32.

    x: [rows, inputs]; out: [rows, outputs] in x's dtype or float32; both contiguous. 16 to 64 rows
    read the weights once, as `Tiling.parts` says. `cut` is what `plan` says, if not given.
    Source: split-K with a semaphore, as in CUTLASS; fixed order of sums for SwiftSpec's small
    batches (arXiv 2506.11309). Traffic: weights.size + rows * (inputs * size of x + outputs *
    size of out) + 8 * splits * rows * outputs bytes, the last if splits > 1 and mostly in L2.
    """
    if out.shape != (len(x), weights.outputs) or not out.is_contiguous():
        wanted = (len(x), weights.outputs)
        raise ValueError(f"out: {tuple(out.shape)}, wanted {wanted}, contiguous")
    launch(linear_kernel, cut or plan(weights), x, weights, scratch, out, **dependent())


def linear_reference(
    x: Tensor, weights: Weights, out: Tensor, scratch: TileScratch, cut: Tiling | None = None
) -> None:
    out.copy_(x.float() @ dense(weights).T)


COMPILATIONS = compilations(linear_kernel)
