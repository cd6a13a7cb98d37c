"""Tiles of x @ W.T for few rows, which `linear`, `gated_mlp` and `projection` share.

A program reads two tiles of weights beside each other, over its split of the inputs, and multiplies
both with up to four parts of 16 rows, one after another: so a row's products are the same however
many rows there are. The splits' sums meet in memory, and the program that comes last adds them by
split index. Only who adds depends on time, never the sum. Leaves what becomes of sums to the
kernels.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from outrider.kernels.gpu.dot import INTERPRETED, product
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
    size = arrivals = 0
    for one in plans:
        groups, parts = one.programs(rows)
        size = max(size, groups * parts * one.sums)
        arrivals = max(arrivals, groups * parts * one.tiles)
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
    groups, parts = cut.programs(rows)
    each = ranks * groups * parts
    tiles, sums = each * cut.tiles, each * cut.sums
    if tiles > len(scratch.arrivals) or sums > len(scratch.sums):
        raise ValueError(f"scratch: made for fewer than {rows} rows of this layer")
    kernel[(groups, cut.tiles, ranks * cut.splits)](
        x, weights.values, weights.scales, weights.zeros, scratch.sums, scratch.arrivals,
        rows, weights.inputs, weights.outputs, cut.splits, cut.share, *others,
        FORMAT=weights.format.value, COLUMNS=cut.columns, BLOCK=cut.block,
        EVEN=weights.inputs % cut.block == 0, NATIVE=_native(weights, x), PARTS=parts,
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
def from_int4(words, QUARTER: tl.constexpr, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return 1 + q / 16, exactly, where q is nibble `QUARTER` of each of `words`.

    Shifted under the exponent of one, the nibble is the top of a mantissa; a register holds two.
    """
    if INTERPRETED or tl.float32 == DTYPE:
        values = (((words >> (4 * QUARTER)) & 15).to(tl.float32) / 16 + 1).to(DTYPE)
    else:
        BITS: tl.constexpr = 7 if tl.bfloat16 == DTYPE else 10
        LEFT: tl.constexpr = BITS - 4 * (QUARTER + 1)
        SHIFT: tl.constexpr = f"shl.b32 w, $1, {LEFT}" if LEFT > 0 else f"shr.b32 w, $1, {-LEFT}"
        NIBBLES: tl.constexpr = 0x000F000F << (BITS - 4)
        ONES: tl.constexpr = 0x3F803F80 if tl.bfloat16 == DTYPE else 0x3C003C00
        bits = tl.inline_asm_elementwise(
            f"{{ .reg .b32 w, one; {SHIFT}; mov.b32 one, {ONES}; "
            f"lop3.b32 $0, w, {NIBBLES}, one, 0xEA; }}",  # (w & nibbles) | one
            "=r,r", [words], tl.int16, is_pure=True, pack=2,
        )  # fmt: skip
        values = bits.to(DTYPE, bitcast=True)
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
def zero_sums(PARTS: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a tuple of PARTS sums [LINES, COLUMNS], zeros."""
    sums = ()
    for _ in tl.static_range(PARTS):
        sums = appended(sums, tl.zeros([LINES, COLUMNS], tl.float32))
    return sums


@triton.jit
def appended(some, one):  # type: ignore[no-untyped-def]
    """Return a tuple with one more element."""
    return some + (one,)  # noqa: RUF005 - Triton unpacks no tuple


@triton.jit
def scaled(sums, scales, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the parts' sums [LINES, COLUMNS] times scales [COLUMNS]."""
    results = ()
    for part in tl.static_range(PARTS):
        results = appended(results, sums[part] * scales[None, :])
    return results


@triton.jit
def part_of(x, row, rows, inputs, part: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return where each of the part's rows begins in x [LINES, 1], and which are there [LINES]."""
    lines = row + part * LINES + tl.arange(0, LINES)
    return x + lines.to(tl.int64)[:, None] * inputs, lines < rows


@triton.jit
def products_of_groups(  # type: ignore[no-untyped-def]
    x, weights, scales, zeros, row, rows, inputs, outputs, first, second, first_in, second_in,
    begin, end, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Compute `products` of int4 weights: sums of a group are scaled as a whole.

    x @ (q - zero) is 16 (x @ (1 + q / 16) - (1 + zero / 16) x @ 1). Nothing but words and constants
    makes an operand: Triton then reads the words in its layout, and no tile returns to shared
    memory.
    """
    dtype: tl.constexpr = x.dtype.element_ty
    ones = zero_sums(PARTS, COLUMNS)
    others = zero_sums(PARTS, COLUMNS)
    units = tl.full([32, COLUMNS], 1, dtype)
    first, second = first.to(tl.int32), second.to(tl.int32)  # a group has fewer than 2^31 words
    words = tl.arange(0, 32)
    # Outputs that are missing take the last one's words, which needs no mask, and a scale of zero.
    words_one = tl.minimum(first, outputs - 1)[None, :] * 32 + words[:, None]
    words_other = tl.minimum(second, outputs - 1)[None, :] * 32 + words[:, None]
    group = (begin // 128).to(tl.int64) * outputs
    # Scales and zeros are read one group ahead: only what a product reads itself is pipelined.
    scale_one = tl.load(scales + group + first, first_in, other=0.0)
    scale_other = tl.load(scales + group + second, second_in, other=0.0)
    zero_one = tl.load(zeros + group + first, first_in, other=0)
    zero_other = tl.load(zeros + group + second, second_in, other=0)
    for k in range(begin, end, 128):
        tile_one = tl.load(weights + group * 32 + words_one)
        tile_other = tl.load(weights + group * 32 + words_other)
        less_one, less_other = 1 + zero_one.to(tl.float32) / 16, 1 + zero_other.to(tl.float32) / 16
        by_one, by_other = 16 * scale_one.to(tl.float32), 16 * scale_other.to(tl.float32)
        group = tl.where(k + 128 < end, group + outputs, group)
        scale_one = tl.load(scales + group + first, first_in, other=0.0)
        scale_other = tl.load(scales + group + second, second_in, other=0.0)
        zero_one = tl.load(zeros + group + first, first_in, other=0)
        zero_other = tl.load(zeros + group + second, second_in, other=0)
        row_sums = zero_sums(PARTS, COLUMNS)
        group_ones = row_sums
        group_others = row_sums
        for quarter in tl.static_range(4):
            four_one = from_int4(tile_one, quarter, dtype)
            four_other = from_int4(tile_other, quarter, dtype)
            next_sums = ()
            next_ones = ()
            next_others = ()
            for part in tl.static_range(PARTS):
                x_at, seen = part_of(x, row, rows, inputs, part)
                lines = tl.load(x_at + k + quarter * 32 + words[None, :], seen[:, None], other=0.0)
                next_sums = appended(next_sums, product(lines, units, row_sums[part]))
                next_ones = appended(next_ones, product(lines, four_one, group_ones[part]))
                next_others = appended(next_others, product(lines, four_other, group_others[part]))
            row_sums = next_sums
            group_ones = next_ones
            group_others = next_others
        next_ones = ()
        next_others = ()
        for part in tl.static_range(PARTS):
            one = group_ones[part] - row_sums[part] * less_one[None, :]
            other = group_others[part] - row_sums[part] * less_other[None, :]
            next_ones = appended(next_ones, ones[part] + one * by_one[None, :])
            next_others = appended(next_others, others[part] + other * by_other[None, :])
        ones = next_ones
        others = next_others
    return ones, others


@triton.jit
def products(  # type: ignore[no-untyped-def]
    x, weights, scales, zeros, row, rows, inputs, outputs, first, second, first_in, second_in,
    begin, end,
    FORMAT: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, EVEN: tl.constexpr,
    NATIVE: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Return the parts' sums [LINES, COLUMNS] of inputs begin..end for outputs `first`, and those
    for `second`: two tuples of PARTS."""
    dtype: tl.constexpr = x.dtype.element_ty
    if FORMAT == 2:
        ones, others = products_of_groups(
            x, weights, scales, zeros, row, rows, inputs, outputs, first, second, first_in,
            second_in, begin, end, COLUMNS, PARTS,
        )  # fmt: skip
    else:
        ones = zero_sums(PARTS, COLUMNS)
        others = zero_sums(PARTS, COLUMNS)
        for k in range(begin, end, BLOCK):
            at = k + tl.arange(0, BLOCK)
            tile_one = loaded(weights + first * inputs, first_in, k, end, BLOCK, EVEN)
            tile_other = loaded(weights + second * inputs, second_in, k, end, BLOCK, EVEN)
            if FORMAT == 1:
                tile_one = from_e4m3(tile_one, dtype, NATIVE)
                tile_other = from_e4m3(tile_other, dtype, NATIVE)
            next_ones = ()
            next_others = ()
            for part in tl.static_range(PARTS):
                x_at, seen = part_of(x, row, rows, inputs, part)
                there = seen[:, None]
                if not EVEN:
                    there = there & (at < end)[None, :]
                tile = tl.load(x_at + at[None, :], there, other=0.0)
                next_ones = appended(next_ones, product(tile, tile_one, ones[part]))
                next_others = appended(next_others, product(tile, tile_other, others[part]))
            ones = next_ones
            others = next_others
        if FORMAT == 1:
            ones = scaled(ones, tl.load(scales + first, first_in, other=0.0), PARTS)
            others = scaled(others, tl.load(scales + second, second_in, other=0.0), PARTS)
    return ones, others


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
            for index in tl.static_range(MAX_SPLITS):
                there = row + lines < tl.where(index < splits, rows, 0)
                one += tl.load(at + index * size, there, other=0.0, cache_modifier=".cg")
                other += tl.load(
                    at + index * size + COLUMNS, there, other=0.0, cache_modifier=".cg"
                )
            tl.store(arrivals + tile, 0)
    return one, other, last
