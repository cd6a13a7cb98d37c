"""Rows of int8 activations in a form whose products an int16 can hold, for AVX2.

AVX2 multiplies unsigned by signed bytes and adds neighbours in int16, which 255 * 127 * 2 would
saturate. `linear_avx2` adds two such results before it widens them, so an int16 takes four
products. Weights are unsigned, 255 at most: it holds them if neither the positive nor the negative
ones of its four activations exceed 128 in sum, as is almost always so (SmolLM2-135M: 98 % of eight
inputs). What does not fit moves to extra groups at the row's end, whose products are added by
themselves. All sums are exact, so the result is that of any other integer instruction.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from outrider.kernels.cpu.simd import BYTE, HALF, INT, LONG, data, invoke, place, vector

GROUP = 4
"""Inputs that one int32 of a sum takes together."""
PAIRED = 2
"""Groups that are added in int16."""
SPAN = 32
"""Inputs that are looked at together."""
MOST = 128
"""Largest sum of an int16's activations of one sign: 255 * 128 < 2^15."""
EXTRA = 3
"""Groups at most that two groups leave behind."""


class SignedRows(NamedTuple):
    """Rows in signed bytes, and the groups that were moved out of them."""

    values: NDArray[np.int8]  # [rows, padded inputs]
    starts: NDArray[np.int32]  # [rows] what the weights' zero of 128 adds, negative
    counts: NDArray[np.int32]  # [rows] of extra groups
    places: NDArray[np.int32]  # [rows, most] the group of inputs that an extra one belongs to
    extra: NDArray[np.int8]  # [rows, most, 4]


@intrinsic
def _sign(typing: Any, source: Any, at: Any, width: Any, target: Any, to: Any, marks: Any) -> Any:
    """target[to:] = source[at:] - 128, `width` bytes; returns their sum.

    marks[i] becomes other than 0 where something of the 32 bytes from 32 i on has to move.
    """

    def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
        sources, targets, flags = (data(context, builder, sig.args[i], a[i]) for i in (0, 3, 5))
        total = cgutils.alloca_once_value(builder, ir.Constant(vector(INT, SPAN // 2), None))
        with cgutils.for_range(builder, builder.udiv(a[2], LONG(SPAN)), intp=LONG) as loop:
            offset = builder.mul(loop.index, LONG(SPAN))
            where = place(builder, sources, builder.add(a[1], offset), vector(BYTE, SPAN))
            signed = builder.xor(builder.load(where, align=1), _constant(BYTE, SPAN, 128))
            where = place(builder, targets, builder.add(a[4], offset), vector(BYTE, SPAN))
            builder.store(signed, where, align=1)
            pairs = _halves(builder, signed)
            sums = builder.sext(builder.add(*pairs), vector(INT, SPAN // 2))
            builder.store(builder.add(builder.load(total), sums), total)
            positive = _sums_of_four(builder, pairs)
            negative = _sums_of_four(builder, [builder.neg(x) for x in pairs])
            larger = builder.select(
                builder.icmp_unsigned(">", positive, negative), positive, negative
            )
            over = builder.icmp_unsigned(">", larger, _constant(HALF, SPAN // 4, MOST))
            mark = builder.bitcast(over, BYTE)
            builder.store(mark, builder.gep(flags, [loop.index]))
        name = f"llvm.vector.reduce.add.v{SPAN // 2}i32"
        return invoke(builder, name, INT, builder.load(total))

    arrays = (source, types.intp, types.intp, target, types.intp, marks)
    return types.int32(*arrays), lower


def _constant(element: ir.Type, count: int, value: int) -> Any:
    return ir.Constant(vector(element, count), [value] * count)


def _halves(builder: Any, signed: Any) -> list[Any]:
    """Return even and odd bytes, each widened to 16 bits."""
    pairs, eight = builder.bitcast(signed, vector(HALF, SPAN // 2)), _constant(HALF, SPAN // 2, 8)
    return [builder.ashr(builder.shl(pairs, eight), eight), builder.ashr(pairs, eight)]


def _sums_of_four(builder: Any, pairs: list[Any]) -> Any:
    """Add what is positive of an int16's activations: of two neighbours in each of two groups."""
    zero = _constant(HALF, SPAN // 2, 0)
    above = [builder.select(builder.icmp_signed(">", x, zero), x, zero) for x in pairs]
    groups = builder.bitcast(builder.add(*above), vector(INT, SPAN // GROUP))
    empty, lanes = ir.Constant(groups.type, ir.Undefined), SPAN // GROUP
    both = [
        builder.shuffle_vector(
            groups, empty, ir.Constant(vector(INT, lanes // 2), list(range(first, lanes, 2)))
        )
        for first in range(2)
    ]
    return builder.bitcast(builder.add(*both), vector(HALF, SPAN // 4))


@njit(cache=True, nogil=True)
def sign_rows(values, first, count):  # type: ignore[no-untyped-def]
    """Make `SignedRows` of values[first : first + count], uint8 with a zero of 128."""
    width = values.shape[1]
    most = width // (GROUP * PAIRED) * EXTRA
    signed = np.empty((count, width), np.int8)
    starts, counts = np.empty(count, np.int32), np.empty(count, np.int32)
    places, extra = np.empty((count, most), np.int32), np.empty((count, most, GROUP), np.int8)
    marks = np.empty(width // SPAN, np.uint8)
    for row in range(count):
        total = _sign(values, (first + row) * width, width, signed, row * width, marks)
        starts[row] = -128 * total
        number = 0
        for span in range(width // SPAN):
            for lanes in range(4 if marks[span] != 0 else 0):
                if marks[span] >> 2 * lanes & 3:
                    group = span * (SPAN // GROUP) + lanes * PAIRED
                    number = _move_out(signed[row], group, places[row], extra[row], number)
        counts[row] = number
    return SignedRows(signed, starts, counts, places, extra)


@njit(cache=True, nogil=True)
def _move_out(values, group, places, extra, number):  # type: ignore[no-untyped-def]
    """Move the second of two groups out, and half of either that is too large by itself.

    Returns how many extra groups the row has then; before it was `number`.
    """
    for own in (group + 1, group):
        start = own * GROUP
        large = max(_magnitude(values, start), _magnitude(values, start + 2)) > MOST
        if large:
            number = _move(values, start, 1, places, extra, number)
        if own > group:
            number = _move(values, start, 0, places, extra, number)
    return number


@njit(cache=True, nogil=True)
def _magnitude(values, at):  # type: ignore[no-untyped-def]
    """Add the magnitudes of two bytes; that of -128 is none itself."""
    return abs(np.int32(values[at])) + abs(np.int32(values[at + 1]))


@njit(cache=True, nogil=True)
def _move(values, start, shift, places, extra, number):  # type: ignore[no-untyped-def]
    """Append values >> shift of a group to the extra ones, and leave the rest."""
    places[number] = start // GROUP
    for i in range(GROUP):
        part = values[start + i] >> shift
        extra[number, i] = part
        values[start + i] -= part
    return number + 1
