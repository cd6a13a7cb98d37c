"""Rows of int8 activations in a form whose products an int16 can hold, for AVX2.

AVX2 multiplies unsigned by signed bytes and adds neighbours in int16, which 255 * 127 * 2 would
saturate. `linear_avx2` adds two such results before it widens them, so an int16 takes four
products. Weights are unsigned, 255 at most: it holds them if neither the positive nor the negative
ones of its four activations exceed 128 in sum, as is almost always so (SmolLM2-135M: 98 % of eight
inputs). What does not fit moves to extra groups at the row's end, whose products are added by
themselves. All sums are exact, so the result is that of any other integer instruction.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from outrider.kernels.jit.maddubs import GROUP, MOST, PAIRED, SPAN, sign

EXTRA = 3
"""Groups at most that two groups leave behind."""


class SignedRows(NamedTuple):
    """Rows in signed bytes, and the groups that were moved out of them."""

    values: NDArray[np.int8]  # [rows, padded inputs]
    starts: NDArray[np.int32]  # [rows] what the weights' zero of 128 adds, negative
    counts: NDArray[np.int32]  # [rows] of extra groups
    places: NDArray[np.int32]  # [rows, most] the group of inputs that an extra one belongs to
    extra: NDArray[np.int8]  # [rows, most, 4]


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
        total = sign(values, (first + row) * width, width, signed, row * width, marks)
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
