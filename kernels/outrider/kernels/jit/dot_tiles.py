"""Tiles of linear layers by float products, or by instructions that add whole groups of them.

[rows] by [32 outputs] in registers, inputs in order. The instructions are those of `dot` and of
`matrix_products` for int8, and AVX512-BF16's for bf16; other kinds multiply floats, on any machine.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from outrider.kernels.cpu.numeric_kind import NumericKind, NumericPath, kind_of_types
from outrider.kernels.cpu.packing import BLOCK
from outrider.kernels.jit import matrix_products
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
    invoke,
    place,
    pointers,
    sizes,
    vector,
)
from outrider.kernels.jit.tiles import LANES, ahead, dot, finish, order, parts, prefetch_at

ELEMENTS = {4: FLOAT, 2: HALF, 1: BYTE}
SIGNS = 0x80808080
"""What makes four bytes with a zero of 128 signed ones."""
PATHS = {"float32": NumericPath.FP32, "uint16": NumericPath.BF16, "int8": NumericPath.INT8}


def dot_tile(rows: int) -> Any:
    """Make an intrinsic: outputs of `rows` rows in one block; types of x and w choose the kind."""

    @intrinsic
    def tile(typing: Any, x: Any, w: Any, out: Any, at: Any) -> Any:
        """x: `Activations`; w: `Packed`; out [rows, padded outputs]; at: `TileAt`."""
        weight, activation = str(w.types[0].dtype), str(x.types[0].dtype)
        kind = kind_of_types(weight, activation, PATHS[weight])

        def lower(context: Any, builder: Any, sig: Any, a: Any) -> Any:
            xs, of_row = pointers(context, builder, sig.args[0], a[0])
            ws, of_output, starts = pointers(context, builder, sig.args[1], a[1])
            target = data(context, builder, sig.args[2], a[2])
            values = builder.extract_value(a[0], 0)
            _, stride = sizes(context, builder, sig.args[0].types[0], values)
            _, out_stride = sizes(context, builder, sig.args[2], a[2])
            row, block, cut, cuts = integers(context, builder, sig.args[3], a[3])
            column = builder.mul(block, LONG(BLOCK))
            numbers = [builder.add(row, LONG(r)) for r in range(rows)]
            inputs = [builder.gep(xs, [builder.mul(n, stride)]) for n in numbers]
            ws = builder.gep(ws, [builder.mul(column, stride)])
            together, add = step_of(kind, rows)
            steps = builder.udiv(stride, LONG(together))
            of_input = np.dtype(kind.weight).itemsize * BLOCK
            line = together * of_input
            size, passes = builder.mul(stride, LONG(of_input)), parts(rows)
            for own, part in enumerate(passes):
                hints = ahead(builder, (cut, cuts), (own, len(passes)), size, line)
                first = builder.add(column, LONG(part.start * LANES))
                cells = _start(builder, kind, rows, part, builder.gep(starts, [first]))
                _change_pairs(builder, kind, cells, matrix_products.paired)
                with cgutils.for_range(builder, steps, intp=LONG) as loop:
                    prefetch_at(builder, ws, hints, loop.index)
                    add(builder, kind, cells, inputs, ws, part, loop.index)
                _change_pairs(builder, kind, cells, matrix_products.unpaired)
                for number, row_cells in zip(numbers, cells, strict=True):
                    scale = builder.load(builder.gep(of_row, [number]))
                    at = builder.add(builder.mul(number, out_stride), first)
                    scales, to = builder.gep(of_output, [first]), builder.gep(target, [at])
                    finish(builder, [builder.load(c) for c in row_cells], scale, scales, to)
            return context.get_dummy_value()

        return types.void(x, w, out, at), lower

    return tile


def _start(builder: Any, kind: NumericKind, rows: int, part: range, starts: Any) -> list[list[Any]]:
    """Make registers of the sums, at their first values."""
    element = INT if kind.activation is np.uint8 else FLOAT
    sums = vector(element, LANES)
    cells = [[cgutils.alloca_once(builder, sums) for _ in part] for _ in range(rows)]
    for j in range(len(part)):
        value = ir.Constant(sums, [0.0] * LANES)
        if element == INT:
            value = builder.load(place(builder, starts, LONG(j * LANES), sums), align=4)
        for row in cells:
            builder.store(value, row[j])
    return cells


def step_of(kind: NumericKind, rows: int) -> tuple[int, Any]:
    """Return how many inputs a tile's step takes, and the function that adds their products."""
    if matrix_products.pairs(kind, rows):
        return matrix_products.INPUTS, _add_to_pairs
    return kind.group, _add


def _change_pairs(builder: Any, kind: NumericKind, cells: list[list[Any]], change: Any) -> None:
    """Change the sums of rows to those of pairs, or back."""
    for r in matrix_products.pairs(kind, len(cells)):
        for one, other in zip(cells[r], cells[r + 1], strict=True):
            changed = change(builder, kind, builder.load(one), builder.load(other))
            for cell, value in zip((one, other), changed, strict=True):
                builder.store(value, cell)


def _add_to_pairs(
    builder: Any, kind: NumericKind, cells: Any, xs: list[Any], w0: Any, part: range, k: Any
) -> None:
    """Add two groups of inputs: their weights once, times the activations of two rows at a time,
    and of an odd last one."""
    at = builder.mul(k, LONG(matrix_products.INPUTS))
    pairs = matrix_products.pairs(kind, len(xs))
    rows = [matrix_products.rows_of(builder, xs[r], xs[r + 1], at) for r in pairs]
    first = builder.mul(k, LONG(2))
    groups = [first, builder.add(first, LONG(1))]
    lines = [builder.gep(w0, [builder.mul(group, LONG(BLOCK * kind.group))]) for group in groups]
    for j, number in enumerate(part):
        weights = [_weights(builder, kind, line, number) for line in lines]
        for own, outputs in enumerate(matrix_products.outputs_of(builder, *weights)):
            for r, x in zip(pairs, rows, strict=True):
                cell = cells[r + own][j]
                builder.store(
                    matrix_products.multiply(builder, builder.load(cell), x, outputs), cell
                )
        if len(xs) % 2:
            cell = cells[-1][j]
            for group, w in zip(groups, weights, strict=True):
                x = _activation(builder, kind, xs[-1], group)
                builder.store(_dot(builder, kind, builder.load(cell), x, w), cell)


def _add(
    builder: Any, kind: NumericKind, cells: Any, xs: list[Any], w0: Any, part: range, k: Any
) -> None:
    """Add one group of inputs: its weights once, times the activations of each row."""
    group = builder.gep(w0, [builder.mul(k, LONG(BLOCK * kind.group))])
    weights: dict[int, Any] = {}
    values: dict[int, Any] = {}
    for r, j in order(len(xs), len(part)):
        if j not in weights:
            weights[j] = _widen(builder, kind, _weights(builder, kind, group, part.start + j))
        if r not in values:
            values[r] = _activation(builder, kind, xs[r], k)
        cell = cells[r][j]
        builder.store(_dot(builder, kind, builder.load(cell), values[r], weights[j]), cell)


def _weights(builder: Any, kind: NumericKind, group: Any, number: int) -> Any:
    """Load a group's weights of one vector of outputs."""
    size, count = np.dtype(kind.weight).itemsize, LANES * kind.group
    where = place(builder, group, LONG(number * count), vector(ELEMENTS[size], count))
    return builder.load(where, align=min(64, count * size))


def _widen(builder: Any, kind: NumericKind, w: Any) -> Any:
    """Convert weights to what the inner product takes."""
    if kind is NumericKind.BF16:
        ints = vector(INT, LANES)
        bits = builder.shl(builder.zext(w, ints), ir.Constant(ints, [16] * LANES))
        return builder.bitcast(bits, vector(count=LANES))
    return builder.sitofp(w, vector(count=LANES)) if kind is NumericKind.INT8 else w


def _activation(builder: Any, kind: NumericKind, x: Any, k: Any) -> Any:
    """Load one group of a row's activations into every lane."""
    if kind.group == 1:
        return broadcast(builder, builder.load(builder.gep(x, [k])), LANES)
    where = place(builder, x, builder.mul(k, LONG(kind.group)), INT)
    lanes = broadcast(builder, builder.load(where, align=4), LANES)
    if kind is NumericKind.INT8_DOTPROD:
        lanes = builder.xor(lanes, ir.Constant(lanes.type, [SIGNS] * LANES))
    return lanes


class _Bfloat(ir.Type):
    """LLVM's `bfloat`, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"


_PAIRS = vector(_Bfloat(), 2 * LANES)


def _dot(builder: Any, kind: NumericKind, total: Any, x: Any, w: Any) -> Any:
    """Return total + the products of one group."""
    if kind.activation is np.uint8:
        return dot(builder, kind, total, builder.bitcast(x, vector(BYTE, 4 * LANES)), w)
    if kind is NumericKind.BF16_AVX512:
        x, w = builder.bitcast(x, _PAIRS), builder.bitcast(w, _PAIRS)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}"
        return invoke(builder, name, total.type, total, x, w)
    return fused(builder, x, w, total)
