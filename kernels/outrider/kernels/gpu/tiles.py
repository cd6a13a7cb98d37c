"""Tiles of x @ W.T for few rows, which `linear`, `gated_mlp` and `projection` share.

A program reads two tiles of weights beside each other, over its split of the inputs, and multiplies
both with the same 16 rows; the splits' sums meet in memory, and the program that comes last adds
them by split index. Only who adds depends on time, never the sum. Leaves what becomes of sums to
the kernels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.dot import product
from outrider.kernels.gpu.tiling import LINES, MAX_SPLITS, Tiling
from outrider.kernels.gpu.weights import WeightFormat, Weights

NATIVE_FP8 = (8, 9)
"""Compute capability from which the device converts e4m3 itself."""


@dataclass(frozen=True, slots=True)
class TileScratch:
    """Sums of splits until all have come; one is enough for layers that run one after another."""

    sums: Tensor  # float32, flat
    arrivals: Tensor  # int32 by tile, zeros between launches


def make_scratch(rows: int, plans: Iterable[Tiling], device: str) -> TileScratch:
    """Return buffers for passes of at most `rows` rows through any of the layers."""
    groups = -(-rows // LINES.value)
    size = arrivals = 0
    for one in plans:
        size = max(size, groups * one.sums)
        arrivals = max(arrivals, groups * one.tiles)
    return TileScratch(
        torch.empty(size, dtype=torch.float32, device=device),
        torch.zeros(arrivals, dtype=torch.int32, device=device),
    )


def launch(
    kernel: Any,
    cut: Tiling,
    x: Tensor,
    weights: Weights,
    scratch: TileScratch,
    *others: Any,
    ranks: int = 1,
    **constants: Any,
) -> None:
    """Start `kernel` with the parameters that all of these share, `others` and `constants`.

    x: [rows, inputs], contiguous; of several ranks, the rows of one after those of another. Raises
    `ValueError` where x or the scratch does not fit.
    """
    rows = len(x) // ranks
    if x.shape != (ranks * rows, weights.inputs) or not x.is_contiguous():
        raise ValueError(f"x: {tuple(x.shape)}, wanted [rows, {weights.inputs}], contiguous")
    if weights.format is WeightFormat.PLAIN and weights.values.dtype != x.dtype:
        raise ValueError(f"x: {x.dtype}, wanted the weights' {weights.values.dtype}")
    groups = -(-rows // LINES.value)
    tiles, sums = ranks * groups * cut.tiles, ranks * groups * cut.sums
    if tiles > len(scratch.arrivals) or sums > len(scratch.sums):
        raise ValueError(f"scratch: made for fewer than {rows} rows of this layer")
    kernel[(groups, cut.tiles, ranks * cut.splits)](
        x, weights.values, weights.scales, weights.zeros, scratch.sums, scratch.arrivals,
        rows, weights.inputs, weights.outputs, cut.splits, cut.share, *others,
        FORMAT=weights.format.value, COLUMNS=cut.columns, BLOCK=cut.block,
        EVEN=weights.inputs % cut.block == 0, NATIVE=_native(weights, x),
        num_warps=cut.warps, num_stages=cut.stages, **constants,
    )  # fmt: skip


def _native(weights: Weights, x: Tensor) -> bool:
    """True if there is e4m3 to convert, on a device that has an instruction for it."""
    if weights.format is not WeightFormat.FP8 or not x.is_cuda:
        return False
    return torch.cuda.get_device_capability(x.device) >= NATIVE_FP8


@triton.jit
def from_e4m3(bits, DTYPE: tl.constexpr, NATIVE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the values of e4m3 bits, exactly; NaN becomes a number."""
    if NATIVE:
        # Through float32: the direct way to bfloat16 takes a conversion a number, at a low rate.
        values = bits.to(tl.float8e4nv, bitcast=True).to(tl.float32).to(DTYPE)
    else:
        wide = bits.to(tl.int16)
        half = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)  # float16, but for its exponent's bias
        values = (half.to(tl.float16, bitcast=True).to(tl.float32) * 256.0).to(DTYPE)
    return values


@triton.jit
def from_int4(words, zeros, SHIFT: tl.constexpr, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return one nibble of each word [WORDS, COLUMNS] less its output's zero [COLUMNS], exactly.

    Bits below the leading one of 2^7 (bfloat16) or 2^10 (float16) count in ones: no conversion.
    """
    nibbles = (words >> SHIFT) & 15
    if tl.bfloat16 == DTYPE:
        values = (nibbles | 0x4300).to(DTYPE, bitcast=True) - (zeros + 128.0).to(DTYPE)[None, :]
    elif tl.float16 == DTYPE:
        values = (nibbles | 0x6400).to(DTYPE, bitcast=True) - (zeros + 1024.0).to(DTYPE)[None, :]
    else:
        values = nibbles.to(tl.float32) - zeros[None, :]
    return values


@triton.jit
def loaded(at, inside, k, end, BLOCK: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load weights [BLOCK, COLUMNS] from input k on; at [COLUMNS] points at each output's first."""
    inputs = k + tl.arange(0, BLOCK)
    there = inside[None, :]
    if not EVEN:
        there = there & (inputs < end)[:, None]
    return tl.load(at[None, :] + inputs[:, None], there, other=0)


@triton.jit
def products_of_groups(  # type: ignore[no-untyped-def]
    x_at, seen, weights, scales, zeros, outputs, first, second, first_in, second_in, begin, end,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute `products` of int4 weights: sums of a group are scaled as a whole."""
    dtype: tl.constexpr = x_at.dtype.element_ty
    one = tl.zeros([LINES, COLUMNS], tl.float32)
    other = tl.zeros([LINES, COLUMNS], tl.float32)
    words = tl.arange(0, 32)
    group = (begin // 128).to(tl.int64) * outputs
    # Scales and zeros are read one group ahead: only what a product reads itself is pipelined.
    scale_one = tl.load(scales + group + first, first_in, other=0.0)
    scale_other = tl.load(scales + group + second, second_in, other=0.0)
    zero_one = tl.load(zeros + group + first, first_in, other=0)
    zero_other = tl.load(zeros + group + second, second_in, other=0)
    for k in range(begin, end, 128):
        at_one = weights + (group + first)[None, :] * 32 + words[:, None]
        at_other = weights + (group + second)[None, :] * 32 + words[:, None]
        tile_one = tl.load(at_one, first_in[None, :], other=0)
        tile_other = tl.load(at_other, second_in[None, :], other=0)
        less_one, less_other = zero_one.to(tl.float32), zero_other.to(tl.float32)
        by_one, by_other = scale_one.to(tl.float32), scale_other.to(tl.float32)
        group = tl.where(k + 128 < end, group + outputs, group)
        scale_one = tl.load(scales + group + first, first_in, other=0.0)
        scale_other = tl.load(scales + group + second, second_in, other=0.0)
        zero_one = tl.load(zeros + group + first, first_in, other=0)
        zero_other = tl.load(zeros + group + second, second_in, other=0)
        sum_one = tl.zeros([LINES, COLUMNS], tl.float32)
        sum_other = tl.zeros([LINES, COLUMNS], tl.float32)
        for quarter in tl.static_range(4):
            lines = tl.load(x_at + k + quarter * 32 + words[None, :], seen[:, None], other=0.0)
            sum_one = product(lines, from_int4(tile_one, less_one, quarter * 4, dtype), sum_one)
            other_four = from_int4(tile_other, less_other, quarter * 4, dtype)
            sum_other = product(lines, other_four, sum_other)
        one += sum_one * by_one[None, :]
        other += sum_other * by_other[None, :]
    return one, other


@triton.jit
def products(  # type: ignore[no-untyped-def]
    x, weights, scales, zeros, row, rows, inputs, outputs, first, second, first_in, second_in,
    begin, end,
    FORMAT: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
    NATIVE: tl.constexpr,
):  # fmt: skip
    """Return sums [LINES, COLUMNS] of inputs begin..end for outputs `first` and `second`."""
    lines = row + tl.arange(0, LINES)
    seen = lines < rows
    x_at = x + lines.to(tl.int64)[:, None] * inputs
    if FORMAT == 2:
        one, other = products_of_groups(
            x_at, seen, weights, scales, zeros, outputs, first, second, first_in, second_in,
            begin, end, COLUMNS,
        )  # fmt: skip
    else:
        one = tl.zeros([LINES, COLUMNS], tl.float32)
        other = tl.zeros([LINES, COLUMNS], tl.float32)
        for k in range(begin, end, BLOCK):
            at = k + tl.arange(0, BLOCK)
            there = seen[:, None]
            if not EVEN:
                there = there & (at < end)[None, :]
            tile = tl.load(x_at + at[None, :], there, other=0.0)
            tile_one = loaded(weights + first * inputs, first_in, k, end, BLOCK, EVEN)
            tile_other = loaded(weights + second * inputs, second_in, k, end, BLOCK, EVEN)
            if FORMAT == 1:
                tile_one = from_e4m3(tile_one, tile.dtype, NATIVE)
                tile_other = from_e4m3(tile_other, tile.dtype, NATIVE)
            one = product(tile, tile_one, one)
            other = product(tile, tile_other, other)
        if FORMAT == 1:
            one *= tl.load(scales + first, first_in, other=0.0)[None, :]
            other *= tl.load(scales + second, second_in, other=0.0)[None, :]
    return one, other


@triton.jit
def gathered(  # type: ignore[no-untyped-def]
    one, other, sums, arrivals, tile, row, rows, split, splits, COLUMNS: tl.constexpr
):
    """Return both sums over all splits, and True in the program that has them."""
    last = split == splits - 1
    if splits > 1:
        lines = tl.arange(0, LINES)[:, None]
        seen = row + lines < rows
        size: tl.constexpr = LINES * 2 * COLUMNS
        at = sums + tile * splits * size + lines * 2 * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        tl.store(at + split * size, one, seen)
        tl.store(at + split * size + COLUMNS, other, seen)
        tl.debug_barrier()
        last = tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == splits - 1
        if last:
            one = tl.zeros([LINES, COLUMNS], tl.float32)
            other = tl.zeros([LINES, COLUMNS], tl.float32)
            for part in tl.static_range(MAX_SPLITS):
                there = row + lines < tl.where(part < splits, rows, 0)
                one += tl.load(at + part * size, there, other=0.0, cache_modifier=".cg")
                other += tl.load(at + part * size + COLUMNS, there, other=0.0, cache_modifier=".cg")
            tl.store(arrivals + tile, 0)
    return one, other, last
