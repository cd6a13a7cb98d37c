"""Tiles of linear layers whose weights are four bits, in groups of 32 inputs.

Products of a group are summed first (over bytes with VNNI, else over floats), then multiplied by
the group's scale and added up in float32, with the group's least value times the sum of its
activations. Each (row, output) is one sum in one fixed order.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.kernels.cpu.int4_packing import GROUP, group_bytes
from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of_types
from outrider.kernels.cpu.packing import BLOCK
from outrider.kernels.jit.maddubs import multiply_pairs, widen_pairs
from outrider.kernels.jit.simd import (
    BYTE,
    FLOAT,
    HALF,
    INT,
    LONG,
    broadcast,
    data,
    fused,
    integers,
    place,
    pointers,
    sizes,
    vector,
)
from outrider.kernels.jit.tiles import LANES, ahead, dot, finish, parts, prefetch_at

SIGN_AND_REST = ~0x70001FFF
"""Bits of a float that a half has."""
BYTES = group_bytes(BLOCK)
"""One group of a block."""
NARROW = 16
"""Inputs whose products are added in int16: 4 * 2 * 255 * 15 < 2^15."""


def int4_tile(rows: int) -> Any:
    """Make an intrinsic: outputs of `rows` rows in one block; the type of x chooses the kind."""

    @intrinsic
    def tile(typing: Any, x: Any, w: Any, out: Any, at: Any) -> Any:
        """x: `GroupedActivations`; w: `Packed`; out [rows, padded outputs]; at: `TileAt`."""
        kind = kind_of_types("uint8", str(x.types[0].dtype), NumericPath.INT4)

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            xs, of_row, sums = pointers(context, builder, sig.args[0], a[0])
            ws, of_output, starts = pointers(context, builder, sig.args[1], a[1])
            target = data(context, builder, sig.args[2], a[2])
            values = builder.extract_value(a[0], 0)
            _, stride = sizes(context, builder, sig.args[0].types[0], values)
            _, out_stride = sizes(context, builder, sig.args[2], a[2])
            row, block, cut, cuts = integers(context, builder, sig.args[3], a[3])
            column = builder.mul(block, LONG(BLOCK))
            groups = builder.udiv(stride, LONG(GROUP))
            numbers = [builder.add(row, LONG(r)) for r in range(rows)]
            inputs = [builder.gep(xs, [builder.mul(n, stride)]) for n in numbers]
            sums_of = [builder.gep(sums, [builder.mul(n, groups)]) for n in numbers]
            size = builder.mul(groups, LONG(BYTES))
            ws = builder.gep(ws, [builder.mul(block, size)])
            hints = ahead(builder, (cut, cuts), size, BYTES)
            for part in parts(rows):
                first = builder.add(column, LONG(part.start * LANES))
                cells = _start(builder, rows, part, builder.gep(starts, [first]))
                with cgutils.for_range(builder, groups, intp=LONG) as loop:
                    if part.start == 0:
                        prefetch_at(builder, ws, hints, loop.index, BYTES)
                    group = builder.gep(ws, [builder.mul(loop.index, LONG(BYTES))])
                    at = builder.mul(loop.index, LONG(GROUP))
                    own = [builder.gep(x, [at]) for x in inputs]
                    of_group = [builder.gep(x, [loop.index]) for x in sums_of]
                    _step(builder, kind, cells, own, of_group, group, part)
                for number, row_cells in zip(numbers, cells, strict=True):
                    scale = builder.load(builder.gep(of_row, [number]))
                    at = builder.add(builder.mul(number, out_stride), first)
                    scales, to = builder.gep(of_output, [first]), builder.gep(target, [at])
                    finish(builder, row_cells, scale, scales, to)
            return context.get_dummy_value()

        return types.void(x, w, out, at), lower

    return tile


def _start(builder: Any, rows: int, part: range, starts: Any) -> list[list[Any]]:
    """Make registers of the sums over all groups, at their first values."""
    lanes = vector(count=LANES)
    cells = [[cgutils.alloca_once(builder, lanes) for _ in part] for _ in range(rows)]
    for j in range(len(part)):
        value = builder.load(place(builder, starts, LONG(j * LANES), lanes), align=4)
        for row in cells:
            builder.store(value, row[j])
    return cells


def _step(
    builder: Any,
    kind: NumericKind,
    cells: Any,
    xs: list[Any],
    sums: list[Any],
    group: Any,
    part: range,
) -> None:
    """Add one group: its codes once, times the activations of each row."""
    narrow = kind is NumericKind.INT4_AVX2
    totals = (_narrow_products if narrow else _products)(builder, kind, group, xs, part)
    scales, least = (_halves(builder, group, 2 * BLOCK * i, part) for i in range(2))
    for row_cells, row_totals, row_sums in zip(cells, totals, sums, strict=True):
        row_sum = broadcast(builder, builder.load(row_sums), LANES)
        for j, cell in enumerate(row_cells):
            total = row_totals[j]
            if total.type.element == INT:
                total = builder.sitofp(total, vector(count=LANES))
            value = fused(builder, total, scales[j], builder.load(cell))
            builder.store(fused(builder, row_sum, least[j], value), cell)


def _products(
    builder: Any, kind: NumericKind, group: Any, xs: list[Any], part: range
) -> list[list[Any]]:
    """Return sums of code * activation over one group, [rows][vectors of outputs]."""
    zero = ir.Constant(vector(INT if kind.activation is np.uint8 else FLOAT, LANES), [0] * LANES)
    totals = [[zero] * len(part) for _ in xs]
    for first in range(0, GROUP, kind.group):
        codes = _codes(builder, kind, group, first, part)
        for x, row in zip(xs, totals, strict=True):
            value = _activation(builder, kind, builder.gep(x, [LONG(first)]))
            row[:] = [_dot(builder, kind, s, value, w) for s, w in zip(row, codes, strict=True)]
    return totals


def _narrow_products(
    builder: Any, kind: NumericKind, group: Any, xs: list[Any], part: range
) -> list[list[Any]]:
    """Return what `_products` does: a row at a time, first in int16."""
    firsts = range(0, GROUP, kind.group)
    codes = {first: _codes(builder, kind, group, first, part) for first in firsts}
    totals = []
    for x in xs:
        values = {i: _activation(builder, kind, builder.gep(x, [LONG(i)])) for i in firsts}
        row = []
        for j in range(len(part)):
            halves = []
            for start in range(0, GROUP, NARROW):
                sums = [
                    multiply_pairs(builder, values[i], codes[i][j])
                    for i in range(start, start + NARROW, kind.group)
                ]
                halves.append(widen_pairs(builder, _sum(builder, sums)))
            row.append(_sum(builder, halves))
        totals.append(row)
    return totals


def _sum(builder: Any, values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = builder.add(total, value)
    return total


def _codes(builder: Any, kind: NumericKind, group: Any, first: int, part: range) -> list[Any]:
    """Return codes of inputs from `first` on: four of each output as bytes, or one as floats.

    Eight inputs of an output are four bytes: input i of 0-3 in bits 8 i, of 4-7 four higher.
    """
    eight, number = divmod(first, 8)
    element, count = (BYTE, 4 * LANES) if kind.group == 4 else (INT, LANES)
    mask, by = (
        ir.Constant(vector(element, count), [n] * count)
        for n in (15, 4 * (number // 4) + 8 * (number % 4))
    )
    found = []
    for j in part:
        at = LONG(4 * BLOCK + 4 * (BLOCK * eight + LANES * j))
        where = place(builder, group, at, vector(BYTE, 4 * LANES))
        line = builder.bitcast(builder.load(where, align=4 * LANES), vector(element, count))
        codes = builder.and_(builder.lshr(line, by), mask)
        found.append(codes if kind.group == 4 else builder.sitofp(codes, vector(count=LANES)))
    return found


def _activation(builder: Any, kind: NumericKind, x: Any) -> Any:
    """Load one row's next activations into every lane."""
    if kind.group == 1:
        return broadcast(builder, builder.load(x), LANES)
    four = builder.load(builder.bitcast(x, INT.as_pointer()), align=4)
    return builder.bitcast(broadcast(builder, four, LANES), vector(BYTE, 4 * LANES))


def _dot(builder: Any, kind: NumericKind, total: Any, x: Any, w: Any) -> Any:
    """Return total + the products of x and w."""
    if kind.group == 1:
        return fused(builder, x, w, total)
    return dot(builder, kind, total, x, w)


def _halves(builder: Any, group: Any, at: int, part: range) -> list[Any]:
    """Load half-precision values of a block's outputs as floats, finite ones, on any machine.

    Shifted to where a float has its exponent and fraction, they are 2^112 times too small.
    """
    ints = vector(INT, LANES)
    thirteen, mask = (ir.Constant(ints, [n] * LANES) for n in (13, SIGN_AND_REST))
    larger = ir.Constant(vector(count=LANES), [2.0**112] * LANES)
    found = []
    for j in part:
        where = place(builder, group, LONG(at + 2 * LANES * j), vector(HALF, LANES))
        bits = builder.sext(builder.load(where, align=2 * LANES), ints)
        bits = builder.and_(builder.shl(bits, thirteen), mask)
        found.append(builder.fmul(builder.bitcast(bits, larger.type), larger))
    return found
