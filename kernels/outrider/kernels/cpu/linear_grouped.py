"""Linear layers whose weights are quants in groups; otherwise as `linear`.

Leaves the products of a tile to `outrider.kernels.jit.grouped_tiles`, the layout of weights to
`grouped_packing`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from outrider.kernels.cpu.grouped_packing import FIRST, LAST, LAYOUT, LAYOUTS, OFFSET, SPAN
from outrider.kernels.jit.grouped_tiles import GroupedTile, grouped_tile, layout_of
from outrider.kernels.jit.tiles import TILE_ROWS


class GroupedActivations(NamedTuple):
    """`Activations`, and what zeros and least values of groups are multiplied by."""

    values: NDArray[Any]  # [rows, padded inputs]
    scales: NDArray[np.float32]  # [rows]
    sums: NDArray[np.float32]  # [rows, groups] of values
    starts: NDArray[np.int32]  # [rows, groups] of values, times the zero of quants, negative


_T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8 = (grouped_tile(rows) for rows in range(1, 9))


@njit(cache=True, nogil=True)
def linear_grouped(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute `linear` for `GroupedWeights`."""
    for number in range(len(w.segments)):
        segment = w.segments[number]
        first, last = max(blocks.first, segment[FIRST]), min(blocks.last, segment[LAST])
        if first < last:
            _multiply_by_layout(x, count, w, w.marks, segment, out, first, last)


def _multiply_by_layout(*arguments: Any) -> None:
    """Run the tiles of the segment's layout; compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_multiply_by_layout, inline="never")
def _multiply_by_first(x, count, w, marks, segment, out, first, last):  # type: ignore[no-untyped-def]
    if len(marks) == 0:
        return lambda x, count, w, marks, segment, out, first, last: None
    number = LAYOUTS.index(layout_of(marks.types[0]))

    def multiply(x, count, w, marks, segment, out, first, last):  # type: ignore[no-untyped-def]
        if segment[LAYOUT] == number:
            _multiply(x, count, w, marks[0], segment, out, first, last)
        else:
            _multiply_by_layout(x, count, w, marks[1:], segment, out, first, last)

    return multiply


def _group_and_zero(mark: Any) -> tuple[int, int]:
    """Return the inputs of a group, and the zero of quants; compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_group_and_zero)
def _group_and_zero_of_type(mark):  # type: ignore[no-untyped-def]
    both = layout_of(mark).group, layout_of(mark).zero
    return lambda mark: both


def _total(values: Any) -> Any:
    """Add integers in int32, floats as they are; compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_total)
def _total_by_type(values):  # type: ignore[no-untyped-def]
    kind = np.float32 if str(values.dtype) == "float32" else np.int32

    def total(values):  # type: ignore[no-untyped-def]
        found = kind(0)
        for value in values:
            found += kind(value)
        return found

    return total


@njit(cache=True, nogil=True)
def _group_sums(values, count, group):  # type: ignore[no-untyped-def]
    """Return sums of each group [rows, groups]."""
    groups = values.shape[1] // group
    sums = np.empty((count, groups), np.float32)
    for row in range(count):
        for number in range(groups):
            sums[row, number] = _total(values[row, number * group : (number + 1) * group])
    return sums


@njit(cache=True, nogil=True)
def _multiply(x, count, w, mark, segment, out, first, last):  # type: ignore[no-untyped-def]
    """Compute blocks `first` to `last` of a segment."""
    values = x.values
    group, zero = _group_and_zero(mark)
    sums = _group_sums(values, count, group)
    starts = (sums * np.float32(-zero)).astype(np.int32)
    grouped = GroupedActivations(values, x.scales, sums, starts)
    cuts = (count + TILE_ROWS - 1) // TILE_ROWS
    for block in range(first, last):
        row = 0
        for cut in range(cuts):
            here = (count - row) // (cuts - cut)
            own = block - segment[FIRST]
            at = GroupedTile(row, block, cut, cuts, segment[OFFSET], own, segment[SPAN])
            if here == 1:
                _T1(grouped, w, mark, out, at)
            elif here == 2:
                _T2(grouped, w, mark, out, at)
            elif here == 3:
                _T3(grouped, w, mark, out, at)
            elif here == 4:
                _T4(grouped, w, mark, out, at)
            elif here == 5:
                _T5(grouped, w, mark, out, at)
            elif here == 6:
                _T6(grouped, w, mark, out, at)
            elif here == 7:
                _T7(grouped, w, mark, out, at)
            else:
                _T8(grouped, w, mark, out, at)
            row += here
