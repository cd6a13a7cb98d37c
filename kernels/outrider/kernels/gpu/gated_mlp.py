"""Gated MLP: the gated half of a feed-forward layer in one launch: silu(x @ gate.T) * (x @ up.T).

A program multiplies the same rows with a tile of the gate and that of the up weights, so what goes
to memory is the product alone. Leaves the projection down to `linear`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.dependent_launch import dependent, launch_next, wait_for_inputs
from outrider.kernels.gpu.linear_shapes import compilations
from outrider.kernels.gpu.tiles import TileScratch, gathered, launch, products
from outrider.kernels.gpu.tiling import LINES, Tiling, plan
from outrider.kernels.gpu.weights import Weights, dense


@triton.jit(do_not_specialize=["rows", "splits"])
def gated_kernel(  # type: ignore[no-untyped-def]
    x, weights, scales, zeros, sums, arrivals,
    rows, inputs, outputs, splits, share,
    out,
    FORMAT: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
    NATIVE: tl.constexpr, PARTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A program: PARTS of 16 rows, one tile of both halves, one split."""
    row = tl.program_id(0) * PARTS * LINES
    tile = tl.program_id(1)
    split = tl.program_id(2)
    width = outputs // 2
    first = tile.to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    inside = first < width
    begin = split * share
    wait_for_inputs(PDL)
    gates, ups = products(
        x, weights, scales, zeros, row, rows, inputs, outputs, first, first + width,
        inside, inside, begin, tl.minimum(begin + share, inputs),
        FORMAT, COLUMNS, BLOCK, EVEN, NATIVE, PARTS,
    )  # fmt: skip
    launch_next(PDL)
    place = (tile * tl.num_programs(0) + tl.program_id(0)) * PARTS
    for part in tl.static_range(PARTS):
        begin_row = row + part * LINES
        gate, up, last = gathered(
            gates[part], ups[part], sums, arrivals, place + part, begin_row, rows, split, splits,
            COLUMNS,
        )  # fmt: skip
        if last:
            lines = begin_row + tl.arange(0, LINES)
            seen = (lines < rows)[:, None] & inside[None, :]
            at = out + lines.to(tl.int64)[:, None] * width + first[None, :]
            product = gate * tl.sigmoid(gate) * up
            tl.store(at, product.to(out.dtype.element_ty), seen)


def gated(
    x: Tensor, weights: Weights, out: Tensor, scratch: TileScratch, cut: Tiling | None = None
) -> None:
    """Compute out = silu(x @ gate.T) * (x @ up.T), in float32 up to the product.

    x: [rows, inputs]; weights: gate's outputs, then up's; out: [rows, outputs / 2] in x's dtype;
    both contiguous. `cut` is what `plan` says, if not given. Source:
    SwiftSpec's fused SwiGLU (arXiv 2506.11309, section on kernels; M8). Traffic: weights.size +
    rows * (inputs + outputs / 2) * size of x + 8 * splits * rows * outputs bytes, the last if
    splits > 1 and mostly in L2.
    """
    if out.shape != (len(x), weights.outputs // 2) or not out.is_contiguous():
        wanted = (len(x), weights.outputs // 2)
        raise ValueError(f"out: {tuple(out.shape)}, wanted {wanted}, contiguous")
    launch(gated_kernel, cut or plan(weights), x, weights, scratch, out, **dependent())


def gated_reference(
    x: Tensor, weights: Weights, out: Tensor, scratch: TileScratch, cut: Tiling | None = None
) -> None:
    gate, up = (x.float() @ dense(weights).T).chunk(2, 1)
    out.copy_(torch.nn.functional.silu(gate) * up)


COMPILATIONS = compilations(gated_kernel)
