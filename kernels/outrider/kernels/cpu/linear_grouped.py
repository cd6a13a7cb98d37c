"""Linear layers whose weights are quants in groups; otherwise as `linear`.

Leaves the products of a tile to `outrider.kernels.jit.grouped_tiles`, those of many rows by AMX to
`amx_grouped`, the layout of weights to `grouped_packing`.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import overload
from numpy.typing import NDArray

from outrider.kernels.cpu.grouped_packing import FIRST, LAST, LAYOUT, LAYOUTS, OFFSET, SPAN
from outrider.kernels.cpu.linear_amx import tiling
from outrider.kernels.cpu.packing import BLOCK
from outrider.kernels.jit import isa
from outrider.kernels.jit.amx import INPUTS, LINE, release_registers, take_registers
from outrider.kernels.jit.amx_grouped import SPAN_INPUTS, BlockAt, TiledRows, grouped_block
from outrider.kernels.jit.grouped_tiles import GroupedTile, grouped_tile, layout_of, streams_of
from outrider.kernels.jit.isa import Isa
from outrider.kernels.jit.simd import address
from outrider.kernels.jit.tiles import TILE_ROWS

AMX_ROWS = {4: 12, 8: 32}
"""Rows by bits of quants from which on AMX is used (Sapphire Rapids, 1,536 by 8,960, ms, AVX-512
and AMX: Q4_K 8 rows 0.81, 0.90, 16 rows 1.25, 1.00; Q6_K 16 rows 1.60, 2.1, 32 rows 2.4, 2.35)."""


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
    layout = layout_of(marks.types[0])
    number = LAYOUTS.index(layout)

    def multiply(x, count, w, marks, segment, out, first, last):  # type: ignore[no-untyped-def]
        if segment[LAYOUT] == number:
            _multiply(x, count, w, marks[0], segment, out, first, last)
        else:
            _multiply_by_layout(x, count, w, marks[1:], segment, out, first, last)

    if isa.current() is not Isa.AMX or not layout.nested or x.types[0].dtype != types.int8:
        return multiply
    least, span = AMX_ROWS[layout.bits], SPAN_INPUTS // layout.group

    def multiply_many(x, count, w, marks, segment, out, first, last):  # type: ignore[no-untyped-def]
        if segment[LAYOUT] != number:
            _multiply_by_layout(x, count, w, marks[1:], segment, out, first, last)
        elif count < least or segment[SPAN] != span:
            _multiply(x, count, w, marks[0], segment, out, first, last)
        else:
            _multiply_by_registers(x, count, w, marks[0], segment, out, first, last)

    return multiply_many


def _numbers(mark: Any) -> tuple[int, int, int]:
    """Return the inputs of a group, the zero of quants, and the blocks that one row reads in turns;
    compiled code only."""
    raise NotImplementedError("runs inside compiled kernels")


@overload(_numbers)
def _numbers_of_type(mark):  # type: ignore[no-untyped-def]
    layout = layout_of(mark)
    found = layout.group, layout.zero, streams_of(1, layout)
    return lambda mark: found


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
def _tiled(x, count, tiles, rows, group):  # type: ignore[no-untyped-def]
    """Return `TiledRows` of tiles of so many rows."""
    spans = x.values.shape[1] // SPAN_INPUTS
    steps, groups = SPAN_INPUTS // INPUTS, SPAN_INPUTS // group
    lines = _aligned(spans * tiles * SPAN_INPUTS * rows).view(np.int8)
    lines = lines.reshape(spans, tiles, steps, rows, INPUTS)
    sums = np.zeros((spans, tiles * rows, groups), np.int16)
    totals = _aligned(tiles * rows * BLOCK * 4).view(np.float32).reshape(tiles * rows, BLOCK)
    for row in range(tiles * rows):
        tile, own = row // rows, row % rows
        for span in range(spans):
            for step in range(steps):
                first = (span * steps + step) * INPUTS
                for i in range(INPUTS):
                    value = x.values[row, first + i] if row < count else np.int8(0)
                    lines[span, tile, step, own, i] = value
            for number in range(groups if row < count else 0):
                first = span * SPAN_INPUTS + number * group
                sums[span, row, number] = _total(x.values[row, first : first + group])
    return TiledRows(lines, sums, x.scales, totals)


@njit(cache=True, nogil=True)
def _aligned(size):  # type: ignore[no-untyped-def]
    """Return so many bytes, from a cache line on."""
    raw = np.empty(size + LINE, np.uint8)
    first = -address(raw) % LINE
    return raw[first : first + size]


@njit(cache=True, nogil=True)
def _multiply_by_registers(x, count, w, mark, segment, out, first, last):  # type: ignore[no-untyped-def]
    """Compute blocks `first` to `last` of a segment by AMX."""
    group, _, _ = _numbers(mark)
    tiles, rows = tiling(count)
    tiled = _tiled(x, count, tiles, rows, group)
    spans = len(tiled.lines)
    take_registers(rows)
    for block in range(first, last):
        own = block - segment[FIRST]
        at = BlockAt(count, rows, tiles, spans, block, segment[OFFSET], own)
        grouped_block(tiled, w, mark, out, at)
    release_registers()


@njit(cache=True, nogil=True)
def _multiply(x, count, w, mark, segment, out, first, last):  # type: ignore[no-untyped-def]
    """Compute blocks `first` to `last` of a segment."""
    values = x.values
    group, zero, streams = _numbers(mark)
    sums = _group_sums(values, count, group)
    starts = (sums * np.float32(-zero)).astype(np.int32)
    grouped = GroupedActivations(values, x.scales, sums, starts)
    cuts = (count + TILE_ROWS - 1) // TILE_ROWS
    begin, offset, span = segment[FIRST], segment[OFFSET], segment[SPAN]
    each = (last - first + streams - 1) // streams if count == 1 else last - first
    for block in range(first, first + each):
        row = 0
        for cut in range(cuts):
            here = (count - row) // (cuts - cut)
            at = GroupedTile(row, block, cut, cuts, offset, begin, span, each, last - 1)
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
