"""Linear layers whose weights are four bits, in groups of 32 inputs; otherwise as `linear`.

A pass reads five eighths of what it does with int8. Products of a group are summed first (over
bytes with VNNI, else over floats), then multiplied by the group's scale and added up in float32,
with the group's least value times the sum of its activations. Each (row, output) is one sum in one
fixed order, as in `linear`. Leaves the layout of weights to `int4_packing`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from outrider.kernels.cpu.int4_packing import GROUP, LINE, group_bytes
from outrider.kernels.cpu.linear import AHEAD, BLOCK, NumericKind, finish
from outrider.kernels.cpu.simd import (
    BYTE,
    FLOAT,
    HALF,
    INT,
    LANES,
    LONG,
    broadcast,
    data,
    fused,
    invoke,
    place,
    pointers,
    sizes,
    vector,
)

WIDTH = BLOCK // LANES
"""Vectors of a block's outputs."""
SIGN_AND_REST = ~0x70001FFF
"""Bits of a float that a half has."""
BYTES = group_bytes(BLOCK)
"""One group of a block."""


class GroupedActivations(NamedTuple):
    """`Activations`, and the sums that groups' least values are multiplied by."""

    values: NDArray[Any]  # [rows, padded inputs]
    scales: NDArray[np.float32]  # [rows]
    sums: NDArray[np.float32]  # [rows, groups] of values


def _tile(rows: int) -> Any:
    """Make an intrinsic: outputs of `rows` rows in one block; the type of x chooses the kind."""

    @intrinsic
    def tile(typing: Any, x: Any, w: Any, out: Any, row: Any, block: Any) -> Any:
        """x: `GroupedActivations`; w: `Packed`; out [rows, padded outputs]; row: the first."""
        bytewise = x.types[0].dtype == types.uint8
        kind = NumericKind.NIBBLE_QUAD if bytewise else NumericKind.NIBBLE

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            xs, of_row, sums = pointers(context, builder, sig.args[0], a[0])
            ws, of_output, starts = pointers(context, builder, sig.args[1], a[1])
            target = data(context, builder, sig.args[2], a[2])
            values = builder.extract_value(a[0], 0)
            _, stride = sizes(context, builder, sig.args[0].types[0], values)
            _, out_stride = sizes(context, builder, sig.args[2], a[2])
            row, column = a[3], builder.mul(a[4], LONG(BLOCK))
            groups = builder.udiv(stride, LONG(GROUP))
            numbers = [builder.add(row, LONG(r)) for r in range(rows)]
            inputs = [builder.gep(xs, [builder.mul(n, stride)]) for n in numbers]
            sums_of = [builder.gep(sums, [builder.mul(n, groups)]) for n in numbers]
            ws = builder.gep(ws, [builder.mul(builder.mul(a[4], groups), LONG(BYTES))])
            cells = _start(builder, rows, builder.gep(starts, [column]))
            with cgutils.for_range(builder, groups, intp=LONG) as loop:
                _step(builder, kind, cells, inputs, sums_of, ws, loop.index)
            for number, row_cells in zip(numbers, cells, strict=True):
                scale = broadcast(builder, builder.load(builder.gep(of_row, [number])))
                place_of = builder.add(builder.mul(number, out_stride), column)
                finish(builder, row_cells, scale, of_output, column, target, place_of)
            return context.get_dummy_value()

        return types.void(x, w, out, types.intp, types.intp), lower

    return tile


def _start(builder: Any, rows: int, starts: Any) -> list[list[Any]]:
    """Make registers of the sums over all groups, at their first values."""
    cells = [[cgutils.alloca_once(builder, vector()) for _ in range(WIDTH)] for _ in range(rows)]
    for j in range(WIDTH):
        value = builder.load(place(builder, starts, LONG(j * LANES), vector()), align=4)
        for row in cells:
            builder.store(value, row[j])
    return cells


def _step(
    builder: Any, kind: NumericKind, cells: Any, xs: list[Any], sums: list[Any], ws: Any, k: Any
) -> None:
    """Add one group: its codes once, times the activations of each row."""
    group = builder.gep(ws, [builder.mul(k, LONG(BYTES))])
    for line in range(0, BYTES, LINE):
        hint = place(builder, group, LONG(AHEAD + line), BYTE)
        invoke(builder, "llvm.prefetch.p0", ir.VoidType(), hint, INT(0), INT(3), INT(1))
    totals = _products(builder, kind, group, xs, builder.mul(k, LONG(GROUP)))
    scales, least = (_halves(builder, group, 2 * BLOCK * i) for i in range(2))
    for row_cells, row_totals, row_sums in zip(cells, totals, sums, strict=True):
        row_sum = broadcast(builder, builder.load(builder.gep(row_sums, [k])))
        for j, cell in enumerate(row_cells):
            total = row_totals[j]
            if kind is NumericKind.NIBBLE_QUAD:
                total = builder.sitofp(total, vector())
            value = fused(builder, total, scales[j], builder.load(cell))
            builder.store(fused(builder, row_sum, least[j], value), cell)


def _products(
    builder: Any, kind: NumericKind, group: Any, xs: list[Any], first: Any
) -> list[list[Any]]:
    """Return sums of code * activation over one group, [rows][vectors of outputs]."""
    zero = ir.Constant(vector(INT if kind is NumericKind.NIBBLE_QUAD else FLOAT), [0] * LANES)
    totals = [[zero] * WIDTH for _ in xs]
    for eight in range(GROUP // 8):
        lines = [
            builder.load(place(builder, group, LONG(_line(eight, j)), vector(BYTE, LINE)), align=64)
            for j in range(WIDTH)
        ]
        for number, codes in _unpacked(builder, kind, lines):
            at = builder.add(first, LONG(8 * eight + number))
            for x, row in zip(xs, totals, strict=True):
                value = _activation(builder, kind, builder.gep(x, [at]))
                row[:] = [_dot(builder, kind, s, value, w) for s, w in zip(row, codes, strict=True)]
    return totals


def _line(eight: int, j: int) -> int:
    """Return where the codes of eight inputs and 16 outputs begin in their group."""
    return 4 * BLOCK + LINE * (WIDTH * eight + j)


def _unpacked(builder: Any, kind: NumericKind, lines: list[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Yield first input and codes of each vector of outputs: four as bytes, or one as floats.

    A line as 16 integers holds an output in each: input i of 0-3 in bits 8 i, of 4-7 four higher.
    """
    element, count = (BYTE, LINE) if kind is NumericKind.NIBBLE_QUAD else (INT, LANES)
    mask = ir.Constant(vector(element, count), [15] * count)
    for number in range(0, 8, kind.group):
        bits = 4 * (number // 4) + 8 * (number % 4)
        by = ir.Constant(vector(element, count), [bits] * count)
        codes = [builder.bitcast(line, vector(element, count)) for line in lines]
        codes = [builder.and_(builder.lshr(c, by), mask) for c in codes]
        if kind is NumericKind.NIBBLE:
            codes = [builder.sitofp(c, vector()) for c in codes]
        yield number, codes


def _activation(builder: Any, kind: NumericKind, x: Any) -> Any:
    """Load one row's next activations into every lane."""
    if kind is NumericKind.NIBBLE:
        return broadcast(builder, builder.load(x))
    four = builder.load(builder.bitcast(x, INT.as_pointer()), align=4)
    return builder.bitcast(broadcast(builder, four), vector(BYTE, LINE))


def _dot(builder: Any, kind: NumericKind, total: Any, x: Any, w: Any) -> Any:
    """Return total + the products of x and w."""
    if kind is NumericKind.NIBBLE:
        return fused(builder, x, w, total)
    return invoke(builder, "llvm.x86.avx512.vpdpbusd.512", vector(INT), total, x, w)


def _halves(builder: Any, group: Any, at: int) -> list[Any]:
    """Load half-precision values of a block's outputs as floats, finite ones, on any machine.

    Shifted to where a float has its exponent and fraction, they are 2^112 times too small.
    """
    ints = vector(INT)
    thirteen, mask = (ir.Constant(ints, [n] * LANES) for n in (13, SIGN_AND_REST))
    larger = ir.Constant(vector(), [2.0**112] * LANES)
    found = []
    for j in range(WIDTH):
        where = place(builder, group, LONG(at + 2 * LANES * j), vector(HALF))
        bits = builder.sext(builder.load(where, align=32), ints)
        bits = builder.and_(builder.shl(bits, thirteen), mask)
        found.append(builder.fmul(builder.bitcast(bits, vector()), larger))
    return found


_T1, _T2, _T3, _T4, _T5, _T6, _T7, _T8 = (_tile(rows) for rows in range(1, 9))


@njit(cache=True, nogil=True)
def linear_int4(x, count, w, out, blocks):  # type: ignore[no-untyped-def]
    """Compute a span of blocks of out[r] = (x[r] @ w.T) * w.scales * x.scales[r], for `count` rows.

    x: `Activations` [rows, padded inputs]; w: `Packed`; out [rows, padded outputs] float32.
    """
    values = x.values
    sums = np.empty((count, values.shape[1] // GROUP), np.float32)
    for row in range(count):
        for group in range(sums.shape[1]):
            sums[row, group] = values[row, group * GROUP : (group + 1) * GROUP].sum()
    grouped = GroupedActivations(values, x.scales, sums)
    parts = (count + 7) // 8
    for block in range(blocks.first, blocks.last):
        row = 0
        for part in range(parts):
            here = (count - row) // (parts - part)
            if here == 1:
                _T1(grouped, w, out, row, block)
            elif here == 2:
                _T2(grouped, w, out, row, block)
            elif here == 3:
                _T3(grouped, w, out, row, block)
            elif here == 4:
                _T4(grouped, w, out, row, block)
            elif here == 5:
                _T5(grouped, w, out, row, block)
            elif here == 6:
                _T6(grouped, w, out, row, block)
            elif here == 7:
                _T7(grouped, w, out, row, block)
            else:
                _T8(grouped, w, out, row, block)
            row += here
